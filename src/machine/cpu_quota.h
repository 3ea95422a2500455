/* How much CPU time the control groups of this process allow. */
#ifndef TRINE_MACHINE_CPU_QUOTA_H
#define TRINE_MACHINE_CPU_QUOTA_H

/* CPUs worth of time, quota / period, of the tightest group: the process's own and all its parents
 * up to the mount, in cgroup version 1 and 2. 0: no limit.
 *   cgroup_root  where cgroups are mounted; NULL: /sys/fs/cgroup
 *   cgroup_self  which groups this process is in; NULL: /proc/self/cgroup
 * errors  none; a group that is not there or cannot be read limits nothing */
double cpu_quota(const char *cgroup_root, const char *cgroup_self);

#endif
