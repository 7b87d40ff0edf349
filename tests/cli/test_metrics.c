/* The text for Prometheus made of made-up answers: every metric, escaping, the limit of jobs. */
#include "../test.h"
#include "agents/prometheus/metrics.h"
#include "base/util.h"

#define GPUS                                                                                       \
    "'gpus':[{'index':0,'label':'nvidia0','name':'H\\\\2','uuid':'GPU-a','level_name':'hardware'," \
    "'idle_while_waiting_s':12.25},{'index':1,'uuid':'GPU-b'}]"
#define JOB                                                                                        \
    "{'number':7,'name':'a\\\"b\\\\c\\nd','class':'batch','weight':300,'pid':41,'uid':4000000001," \
    "'source':'run','account':'team','state':'waiting','processes':2,'busy':0.25,"                 \
    "'memory_bytes':1073741824,'swapped_bytes':5,'deadline_us':20000,'due':{'in_us':-1500000},"    \
    "'mps':{'unit':3,'speed':0.75,'speed_error':0.01},"                                            \
    "'requests':{'programs':1,'begun':11,'ended':10,'open':1,'due':9,'met':8},"                    \
    "'leases':{'count':{'none':6,'memory':2},'waited_s':{'memory':0.25}},"                         \
    "'counts':{'known_s':100.5,'queued_s':1.5,'paused_s':2.5,'swapped_s':3.5,'swaps':4,"           \
    "'swapped_out_bytes':4096,'gpus':[{'gpu':0,'gpu_s':12.5,'exact_s':10.25,'allowed_s':20,"       \
    "'waited_s':30.125,'turns':40,'preempted':5}]}}"
#define BARE                                                                                       \
    "{'number':9,'name':'n','class':'normal','uid':4000000001,'state':'running','busy':null,"      \
    "'memory_bytes':0,'counts':{'gpus':[]}}"
#define PS(jobs)                                                                                   \
    "{'policy':'laxity','device':'nvidia','unmanaged':[{},{}],'unmanaged_more':3," GPUS            \
    ",'jobs':[" jobs "]}"
#define POLICY "{'decisions':50,'controls':60,'controls_failed':1}"

static char *make_of(const char *ps, const struct metrics_choice *choice,
                     enum metrics_format format)
{
    char *copy = ps ? strdup(ps) : NULL;
    for (char *c = copy; c && *c; c++)
        *c = *c == '\'' ? '"' : *c;
    char policy[] = POLICY;
    for (char *c = policy; *c; c++)
        *c = *c == '\'' ? '"' : *c;
    json_t *o = copy ? json_loads(copy, 0, NULL) : NULL, *p = json_loads(policy, 0, NULL);
    assert_true(!copy || o);
    char *text = metrics_text(o, p, choice, format);
    json_decref(o);
    json_decref(p);
    free(copy);
    assert_non_null(text);
    return text;
}

/* Of jobs, with their numbers. */
static char *make(const char *ps, unsigned max_jobs, bool pids, enum metrics_format format)
{
    const struct metrics_choice choice = {.max_jobs = max_jobs, .per_job = true, .pids = pids};
    return make_of(ps, &choice, format);
}

static void has_line(const char *text, const char *line)
{
    const char *at = strstr(text, line);
    size_t n = strlen(line);
    if (!at || (at > text && at[-1] != '\n') || at[n] != '\n')
        fail_msg("no line\n%s\nin\n%s", line, text);
}

#define L      "{number=\"7\",name=\"a\\\"b\\\\c?d\",class=\"batch\",user=\"4000000001\""
#define ON_GPU ",gpu=\"0\",UUID=\"GPU-a\""

TEST(every_metric)
{
    static const char *const lines[] = {
        "cede_up 1",
        "cede_job_info" L ",weight=\"300\",state=\"waiting\",source=\"run\",account=\"team\","
        "pool=\"3\"} 1",
        "cede_job_known_seconds_total" L "} 100.5",
        "cede_job_queued_seconds_total" L "} 1.5",
        "cede_job_paused_seconds_total" L "} 2.5",
        "cede_job_swapped_seconds_total" L "} 3.5",
        "cede_job_swaps_total" L "} 4",
        "cede_swap_bytes_total" L "} 4096",
        "cede_job_memory_bytes" L "} 1073741824",
        "cede_job_swapped_bytes" L "} 5",
        "cede_job_busy_ratio" L "} 0.25",
        "cede_job_speed_ratio" L "} 0.75",
        "cede_job_speed_error_ratio" L "} 0.01",
        "cede_job_processes" L "} 2",
        "cede_job_requests_total" L "} 11",
        "cede_job_requests_ended_total" L "} 10",
        "cede_job_requests_due_total" L "} 9",
        "cede_job_requests_met_total" L "} 8",
        "cede_job_requests_open" L "} 1",
        "cede_job_leases_total" L ",reason=\"none\"} 6",
        "cede_job_leases_total" L ",reason=\"memory\"} 2",
        "cede_job_lease_wait_seconds_total" L ",reason=\"memory\"} 0.25",
        "cede_job_deadline_seconds" L "} 0.02",
        "cede_job_due_seconds" L "} -1.5",
        "cede_job_gpu_seconds_total" L ON_GPU ",exact=\"true\"} 10.25",
        "cede_job_gpu_seconds_total" L ON_GPU ",exact=\"false\"} 2.25",
        "cede_job_allowed_seconds_total" L ON_GPU "} 20",
        "cede_job_wait_seconds_total" L ON_GPU "} 30.125",
        "cede_job_turns_total" L ON_GPU "} 40",
        "cede_job_preemptions_total" L ON_GPU "} 5",
        ("cede_gpu_info{UUID=\"GPU-a\",gpu=\"0\",device=\"nvidia0\",model_name=\"H\\\\2\","
         "level=\"hardware\"} 1"),
        ("cede_gpu_info{UUID=\"GPU-b\",gpu=\"1\",device=\"\",model_name=\"\",level=\"\"} 1"),
        "cede_gpu_idle_while_waiting_seconds_total{UUID=\"GPU-a\",gpu=\"0\"} 12.25",
        "cede_decisions_total 50",
        "cede_controls_total 60",
        "cede_controls_failed_total 1",
        "cede_jobs{class=\"batch\",state=\"waiting\"} 1",
        "cede_jobs_omitted 0",
        "cede_unmanaged_programs 5",
        "# EOF",
    };
    char *text = make(PS(JOB), 500, false, METRICS_OPEN);
    size_t samples = 0;
    for (size_t i = 0; i < ARRAY_SIZE(lines); i++)
        has_line(text, lines[i]);
    for (const char *c = text; *c; c = strchr(c, '\n') + 1)
        samples += *c != '#';
    assert_int_equal(samples, ARRAY_SIZE(lines)); /* less EOF, and with cede_build_info */
    assert_non_null(strstr(text, "\ncede_build_info{version=\""));
    assert_non_null(strstr(text, ",policy=\"laxity\",driver=\"nvidia\"} 1\n"));
    assert_string_equal(text + strlen(text) - 6, "# EOF\n");
    has_line(text, "# TYPE cede_job_gpu_seconds counter");
    has_line(text, "# UNIT cede_job_gpu_seconds seconds");
    has_line(text, "# TYPE cede_job info");
    free(text);
}

TEST(the_older_format)
{
    char *text = make(PS(JOB), 500, false, METRICS_PLAIN);
    has_line(text, "# TYPE cede_job_gpu_seconds_total counter");
    has_line(text, "# TYPE cede_job_info gauge");
    assert_null(strstr(text, "# EOF"));
    assert_null(strstr(text, "# UNIT"));
    free(text);
}

/* What is not known has no sample; what is left out because it is 0 is 0. */
TEST(what_is_not_known)
{
    char *text = make(PS(BARE), 500, false, METRICS_OPEN);
    assert_null(strstr(text, "cede_job_busy_ratio"));
    assert_null(strstr(text, "cede_job_memory_bytes"));
    assert_null(strstr(text, "cede_job_speed"));
    assert_null(strstr(text, "cede_job_requests"));
    assert_null(strstr(text, "cede_job_lease"));
    assert_null(strstr(text, "cede_job_gpu_seconds"));
    has_line(text, "cede_job_swapped_bytes{number=\"9\",name=\"n\",class=\"normal\","
                   "user=\"4000000001\"} 0");
    assert_non_null(strstr(text, ",pool=\"\"} 1\n"));
    free(text);
}

TEST(pids_if_asked_for)
{
    char *text = make(PS(JOB), 500, true, METRICS_OPEN);
    assert_non_null(strstr(text, ",pool=\"3\",pid=\"41\"} 1\n"));
    free(text);
}

TEST(the_oldest_have_series)
{
    char *text = make(PS(JOB "," BARE), 1, false, METRICS_OPEN);
    assert_non_null(strstr(text, "number=\"7\""));
    assert_null(strstr(text, "number=\"9\""));
    has_line(text, "cede_jobs_omitted 1");
    has_line(text, "cede_jobs{class=\"normal\",state=\"running\"} 1");
    free(text);
    text = make(PS(JOB), 0, false, METRICS_OPEN);
    assert_null(strstr(text, "number="));
    assert_null(strstr(text, "cede_job_"));
    free(text);
}

/* What ceded sums up: no series is one job's. */
TEST(sums_of_jobs)
{
    static const char ps[] =
        "{'states':{'batch':{'queued':2,'running':1}},'omitted':4," GPUS ",'jobs':["
        "{'number':7,'name':'n','class':'batch','uid':4000000001,'namespace':'prod','pod':'p-0',"
        "'container':'c','jobs':3,'states':{'queued':2,'running':1},'processes':1,'busy':0.5,"
        "'memory_bytes':9,'counts':{'known_s':3.5,'gpus':[{'gpu':0,'gpu_s':2,'exact_s':2,"
        "'allowed_s':20,'waited_s':3,'turns':4,'preempted':5}]}},"
        "{'number':8,'name':'m','class':'batch','uid':4000000001,'jobs':2}]}";
    const struct metrics_choice choice = {.max_jobs = 1};
    char *text = make_of(ps, &choice, METRICS_OPEN);
#define N                                                                                          \
    "{name=\"n\",class=\"batch\",user=\"4000000001\",namespace=\"prod\",pod=\"p-0\","              \
    "container=\"c\""
    has_line(text, "cede_job_states" N ",state=\"queued\"} 2");
    has_line(text, "cede_job_states" N ",state=\"running\"} 1");
    has_line(text, "cede_job_known_seconds_total" N "} 3.5");
    has_line(text, "cede_job_gpu_seconds_total" N ON_GPU ",exact=\"true\"} 2");
    has_line(text, "cede_jobs{class=\"batch\",state=\"queued\"} 2");
    has_line(text, "cede_jobs_omitted 6"); /* with the jobs of the sum that is one too many */
    assert_null(strstr(text, "number="));
    assert_null(strstr(text, "cede_job_info"));
    assert_null(strstr(text, "name=\"m\""));
    free(text);
}

TEST(no_answer)
{
    char *text = make(NULL, 500, false, METRICS_OPEN);
    assert_string_equal(text, "# HELP cede_up Whether ceded answers.\n# TYPE cede_up gauge\n"
                              "cede_up 0\n# EOF\n");
    free(text);
}

/* Fields of other kinds than they should be. */
TEST(a_strange_answer)
{
    free(make("{'jobs':[1,{'number':'x','counts':[],'gpus':3},null],'gpus':{},'unmanaged':1}", 9,
              true, METRICS_OPEN));
    free(make("{}", 9, true, METRICS_OPEN));
}
