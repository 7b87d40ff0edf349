/* See guest.h. */
#include "api/guest.h"

#define UID_GUEST ((uid_t)-2) /* no user's */

pid_t guest_number(const struct caller *who, struct proc_id p)
{
    if (who->ns.level <= 1)
        return p.pid;
    const pid_t number = pidns_number(who->ns, p.pid);
    return number && proc_check(p) == 0 ? number : 0;
}

bool guest_reaches(const struct caller *who, struct proc_id p)
{
    return !who->guest || guest_number(who, p) != 0;
}

uid_t guest_word(const struct caller *who)
{
    return who->guest ? UID_GUEST : who->uid;
}

uid_t guest_whose(const struct caller *who, uid_t word)
{
    return word == UID_GUEST ? who->uid : who->guest ? UID_OUTSIDE : word;
}
