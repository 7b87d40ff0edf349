/* Included by the compiler before all of libcede: the core's functions that are compiled into it
 * get names of libcede's own, so that a program linked with libcede.a may have functions of these.
 */
#ifndef CEDE_LIBCEDE_CORE_NAMES_H
#define CEDE_LIBCEDE_CORE_NAMES_H

#define batch_decide            cede_core_batch_decide
#define batch_params_default    cede_core_batch_params_default
#define batch_run_ns            cede_core_batch_run_ns
#define lease_params_default    cede_core_lease_params_default
#define leases_ask              cede_core_leases_ask
#define leases_cancel           cede_core_leases_cancel
#define leases_free             cede_core_leases_free
#define leases_new              cede_core_leases_new
#define leases_next_ns          cede_core_leases_next_ns
#define leases_release          cede_core_leases_release
#define leases_set_memory       cede_core_leases_set_memory
#define leases_set_utilization  cede_core_leases_set_utilization
#define leases_step             cede_core_leases_step
#define leases_view             cede_core_leases_view
#define request_answer_text     cede_core_request_answer_text
#define requests_backlog_ns     cede_core_requests_backlog_ns
#define requests_cancel         cede_core_requests_cancel
#define requests_choose         cede_core_requests_choose
#define requests_done           cede_core_requests_done
#define requests_free           cede_core_requests_free
#define requests_late           cede_core_requests_late
#define requests_new            cede_core_requests_new
#define requests_next           cede_core_requests_next
#define requests_next_batch     cede_core_requests_next_batch
#define requests_params_default cede_core_requests_params_default
#define requests_plan           cede_core_requests_plan
#define requests_plan_slack     cede_core_requests_plan_slack
#define requests_plan_step      cede_core_requests_plan_step
#define requests_source         cede_core_requests_source
#define requests_submit         cede_core_requests_submit
#define requests_take           cede_core_requests_take

#endif
