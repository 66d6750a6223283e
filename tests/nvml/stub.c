/* A stand-in for libnvidia-ml.so.1 with the ABI of nvml.h, driven by the scenario file that TANGRAM_NVML_SCENARIO names.
 *
 * The file is read again whenever it changes, so a test can break a driver that is in use. One "key value" a line:
 *
 *   count 8                        devices
 *   driver 580.95.05, cuda 13000
 *   <function> 15                  every call of it ends with this code
 *   <function> hang 60             ... sleeps that many seconds first
 *   <function> segv                ... crashes
 *   device.3.<function> 15         the same for one device; device.3.all 15 for every call on it
 *   device.3.total_mib 81559       reserved_mib, used_mib, util, memutil, temp, power_mw, limit_mw, energy_mj, cores,
 *                                  arch, cc_major, cc_minor, uuid, name, action, remapped_correctable, remapped_uncorrectable,
 *                                  remap_pending, remap_failed, ecc, reasons
 *   device.3.compute 100:512,101:- processes as pid:MiB, - for memory that the driver hides; also graphics, mps
 *   device.3.samples 100:40        SM utilisation as pid:per cent
 *   device.3.mig 1                 MIG is on; device.3.mig.0 1g.10gb:9728:14:1:6 profile:MiB:SM:GPU instance:first slice
 *   device.3.profile.9 1g.20gb:4:26:19968:0,2,4,6/2   name:instances:SMs:MiB:starts/size of profile id 9; 0x12 ids in all
 *   device.3.links switch          or peer indices, 1,2
 *   device.3.gpm 42                SM activity in per cent; device.3.gpm.5 of GPU instance 5; gpm_code 3 for the metric itself
 *   device.3.fabric 3:17           state:clique, with the cluster's UUID made of the clique; fabric_size for the struct accepted
 *   device.3.socket 1              devices with the same number share a NUMA node, those without one tell no ancestor
 *   device.3.retired 2             retired pages of each cause
 *   event 7 3 79                   number, device, XID; each number is delivered once, in the order of the file
 *   event 8 3 94 5 0               ... seen in GPU instance 5, compute instance 0
 *   event 9 3 -256                 ... no XID but another event, here 0x100, the layout of MIG has changed
 *
 * -DOLD_DRIVER leaves out the symbols that drivers before R510 do not have.
 */
#include <pthread.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

enum { OK = 0, INVALID = 2, UNSUPPORTED = 3, NOT_FOUND = 6, SMALL = 7, TIMEOUT = 10, VERSION = 25 };
enum { MAX_DEVICES = 64, SLOTS = 8, MAX_LINES = 4096, LINE = 512 };

typedef struct { int index; int slot; } Device; /* slot -1: the physical device */
typedef struct { unsigned int pid; unsigned long long used; unsigned int gi, ci; } Process;
typedef struct { unsigned int pid; unsigned long long stamp; unsigned int sm, mem, enc, dec; } Sample;
typedef struct { unsigned long long stamp; unsigned int pid, sm, mem, enc, dec, jpg, ofa; } Sample2;
typedef struct { unsigned int version, count; unsigned long long since; Sample2 *samples; } Samples2;
typedef struct { char legacy[16]; unsigned int domain, bus, device, id, subsystem; char bus_id[32]; } Pci;
typedef struct { unsigned int sm, copy, dec, enc, jpg, ofa, gi_slices, ci_slices; unsigned long long mib; } Attributes;
typedef struct { void *device; unsigned long long type, data; unsigned int gi, ci; } Event;
typedef struct { unsigned int id, scope; long long stamp, latency; unsigned int type; int ret; unsigned long long value; } Field;
typedef struct { void *device; unsigned int id, profile, start, size; } Instance;

static Device devices[MAX_DEVICES][SLOTS + 1];
static char lines[MAX_LINES][LINE];
static int line_count, last_event;
static struct timespec read_at;
static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;

static void reload(void) {
    const char *path = getenv("TANGRAM_NVML_SCENARIO");
    struct stat now;
    if (!path || stat(path, &now) || (now.st_mtim.tv_sec == read_at.tv_sec && now.st_mtim.tv_nsec == read_at.tv_nsec)) return;
    FILE *file = fopen(path, "r");
    if (!file) return;
    read_at = now.st_mtim;
    for (line_count = 0; line_count < MAX_LINES && fgets(lines[line_count], LINE, file);)
        if (strlen(lines[line_count]) > 1) lines[line_count][strcspn(lines[line_count], "\n")] = 0, line_count++;
    fclose(file);
}

/* Copies the value of a key, the last line wins; returns whether there is one. */
static int find(const char *key, char *value) {
    size_t length = strlen(key);
    int found = 0;
    pthread_mutex_lock(&lock);
    reload();
    for (int i = 0; i < line_count; i++)
        if (!strncmp(lines[i], key, length) && lines[i][length] == ' ') snprintf(value, LINE, "%s", lines[i] + length + 1), found = 1;
    pthread_mutex_unlock(&lock);
    return found;
}

static int find_of(const Device *device, const char *name, char *value) {
    char key[LINE];
    snprintf(key, LINE, "device.%d.%s", device->index, name);
    return find(key, value);
}

static long long number(const Device *device, const char *name, long long otherwise) {
    char value[LINE];
    return find_of(device, name, value) ? atoll(value) : otherwise;
}

static int act(const char *value) {
    if (!strncmp(value, "hang ", 5)) return sleep((unsigned)atoi(value + 5)), OK;
    if (!strcmp(value, "segv")) raise(SIGSEGV);
    return atoi(value);
}

static int enter(const char *name, const Device *device) {
    char value[LINE];
    if (device && find_of(device, name, value)) return act(value);
    if (device && find_of(device, "all", value)) return act(value);
    return find(name, value) ? act(value) : OK;
}

#define ENTER(device) do { int rc_ = enter(__func__, device); if (rc_) return rc_; } while (0)
#define OPTIONAL(name, out, type) do { char v_[LINE]; if (!find_of(d, name, v_)) return UNSUPPORTED; *(out) = (type)atoll(v_); return OK; } while (0)

/* --- the session --- */
int nvmlInitWithFlags(unsigned int flags) { (void)flags; ENTER(NULL); return OK; }
int nvmlShutdown(void) { ENTER(NULL); return OK; }
const char *nvmlErrorString(int code) { (void)code; return "stub"; }

int nvmlSystemGetDriverVersion(char *out, unsigned int size) {
    char value[LINE];
    ENTER(NULL);
    snprintf(out, size, "%s", find("driver", value) ? value : "580.95.05");
    return OK;
}

int nvmlSystemGetCudaDriverVersion_v2(int *out) {
    char value[LINE];
    ENTER(NULL);
    *out = find("cuda", value) ? atoi(value) : 13000;
    return OK;
}

int nvmlDeviceGetCount_v2(unsigned int *out) {
    char value[LINE];
    ENTER(NULL);
    *out = find("count", value) ? (unsigned)atoi(value) : 1;
    return OK;
}

int nvmlDeviceGetHandleByIndex_v2(unsigned int index, Device **out) {
    if (index >= MAX_DEVICES) return INVALID;
    for (int slot = 0; slot <= SLOTS; slot++) devices[index][slot] = (Device){(int)index, slot - 1};
    ENTER(&devices[index][0]);
    *out = &devices[index][0];
    return OK;
}

/* --- what a device is --- */
int nvmlDeviceGetUUID(const Device *d, char *out, unsigned int size) {
    char value[LINE];
    ENTER(d);
    if (d->slot >= 0) snprintf(out, size, "MIG-%08d-0000-0000-0000-%012d", d->index, d->slot);
    else if (find_of(d, "uuid", value)) snprintf(out, size, "%s", value);
    else snprintf(out, size, "GPU-%08d-0000-0000-0000-000000000000", d->index);
    return OK;
}

static int instance(const Device *d, char *profile, long long *mib, int *sm, int *gi, int *start) {
    char key[32], value[LINE];
    snprintf(key, sizeof key, "mig.%d", d->slot);
    if (!find_of(d, key, value)) return NOT_FOUND;
    return sscanf(value, "%63[^:]:%lld:%d:%d:%d", profile, mib, sm, gi, start) == 5 ? OK : INVALID;
}

int nvmlDeviceGetName(const Device *d, char *out, unsigned int size) {
    char value[LINE], profile[64];
    long long mib;
    int sm, gi, start;
    ENTER(d);
    if (!find_of(d, "name", value)) snprintf(value, LINE, "NVIDIA H100 80GB HBM3");
    if (d->slot >= 0 && !instance(d, profile, &mib, &sm, &gi, &start)) snprintf(out, size, "%s MIG %s", value, profile);
    else snprintf(out, size, "%s", value);
    return OK;
}

int nvmlDeviceGetArchitecture(const Device *d, unsigned int *out) { ENTER(d); *out = (unsigned)number(d, "arch", 9); return OK; }
int nvmlDeviceGetNumGpuCores(const Device *d, unsigned int *out) { ENTER(d); *out = (unsigned)number(d, "cores", 132 * 128); return OK; }

int nvmlDeviceGetCudaComputeCapability(const Device *d, int *major, int *minor) {
    ENTER(d);
    *major = (int)number(d, "cc_major", 9);
    *minor = (int)number(d, "cc_minor", 0);
    return OK;
}

int nvmlDeviceGetPciInfo_v3(const Device *d, Pci *out) {
    ENTER(d);
    memset(out, 0, sizeof *out);
    snprintf(out->bus_id, sizeof out->bus_id, "00000000:%02X:00.0", 0x10 + d->index);
    return OK;
}

/* --- memory and load --- */
static void memory(const Device *d, unsigned long long *total, unsigned long long *reserved, unsigned long long *used) {
    char profile[64];
    long long mib = number(d, "total_mib", 81559);
    int sm, gi, start, split = d->slot >= 0 && !instance(d, profile, &mib, &sm, &gi, &start);
    *total = (unsigned long long)mib << 20;
    *reserved = split ? 0 : (unsigned long long)number(d, "reserved_mib", 479) << 20;
    *used = split ? 0 : (unsigned long long)number(d, "used_mib", 0) << 20;
}

int nvmlDeviceGetMemoryInfo(const Device *d, unsigned long long *out) {
    unsigned long long total, reserved, used;
    ENTER(d);
    memory(d, &total, &reserved, &used);
    out[0] = total, out[2] = used + reserved, out[1] = total - out[2];
    return OK;
}

#ifndef OLD_DRIVER
int nvmlDeviceGetMemoryInfo_v2(const Device *d, unsigned long long *out) {
    unsigned long long total, reserved, used;
    ENTER(d);
    if (*(unsigned int *)out != 0x02000028) return VERSION;
    memory(d, &total, &reserved, &used);
    out[1] = total, out[2] = reserved, out[3] = total - reserved - used, out[4] = used;
    return OK;
}
#endif

int nvmlDeviceGetUtilizationRates(const Device *d, unsigned int *out) {
    ENTER(d);
    if (number(d, "mig", 0)) return UNSUPPORTED;
    out[0] = (unsigned)number(d, "util", 0), out[1] = (unsigned)number(d, "memutil", 0);
    return OK;
}

static int processes(const Device *d, const char *list, unsigned int *count, Process *out) {
    char value[LINE * 2], *rest = value;
    unsigned int room = *count;
    if (!find_of(d, list, value)) value[0] = 0;
    *count = 0;
    for (char *item; (item = strsep(&rest, ",")) && *item; (*count)++) {
        if (!out || *count >= room) continue;
        char *mib = strchr(item, ':') + 1;
        out[*count] = (Process){(unsigned)strtoul(item, NULL, 10), *mib == '-' ? ~0ull : strtoull(mib, NULL, 10) << 20, ~0u, ~0u};
    }
    return *count > room ? SMALL : OK;
}

#ifndef OLD_DRIVER
int nvmlDeviceGetComputeRunningProcesses_v3(const Device *d, unsigned int *n, Process *out) { ENTER(d); return processes(d, "compute", n, out); }
int nvmlDeviceGetGraphicsRunningProcesses_v3(const Device *d, unsigned int *n, Process *out) { ENTER(d); return processes(d, "graphics", n, out); }
int nvmlDeviceGetMPSComputeRunningProcesses_v3(const Device *d, unsigned int *n, Process *out) { ENTER(d); return processes(d, "mps", n, out); }
#endif

int nvmlDeviceGetProcessUtilization(const Device *d, Sample *out, unsigned int *count, unsigned long long since) {
    Process rows[64];
    unsigned int n = 64;
    ENTER(d);
    processes(d, "samples", &n, rows);
    if (!n || since >= 1000) return NOT_FOUND;
    if (!out || *count < n) return *count = n, SMALL;
    for (unsigned int i = 0; i < n; i++) out[i] = (Sample){rows[i].pid, 1000, (unsigned)(rows[i].used >> 20), 0, 0, 0};
    return *count = n, OK;
}

#ifndef OLD_DRIVER
int nvmlDeviceGetProcessesUtilizationInfo(const Device *d, Samples2 *out) {
    Process rows[64];
    unsigned int n = 64;
    ENTER(d);
    processes(d, "samples", &n, rows);
    if (!n || out->since >= 1000) return NOT_FOUND;
    if (!out->samples || out->count < n) return out->count = n, SMALL;
    for (unsigned int i = 0; i < n; i++) out->samples[i] = (Sample2){1000, rows[i].pid, (unsigned)(rows[i].used >> 20), 0, 0, 0, 0, 0};
    return out->count = n, OK;
}
#endif

/* --- MIG --- */
int nvmlDeviceGetMigMode(const Device *d, unsigned int *now, unsigned int *pending) {
    ENTER(d);
    *now = *pending = (unsigned)number(d, "mig", 0);
    return OK;
}

int nvmlDeviceGetMaxMigDeviceCount(const Device *d, unsigned int *out) { ENTER(d); *out = number(d, "mig", 0) ? 7 : 0; return OK; }

int nvmlDeviceGetMigDeviceHandleByIndex(const Device *d, unsigned int slot, Device **out) {
    char profile[64];
    long long mib;
    int sm, gi, start;
    ENTER(d);
    if (slot >= SLOTS) return INVALID;
    if (instance(&devices[d->index][slot + 1], profile, &mib, &sm, &gi, &start)) return NOT_FOUND;
    *out = &devices[d->index][slot + 1];
    return OK;
}

int nvmlDeviceGetGpuInstanceId(const Device *d, unsigned int *out) {
    char profile[64];
    long long mib;
    int sm, gi, start;
    ENTER(d);
    if (d->slot < 0 || instance(d, profile, &mib, &sm, &gi, &start)) return INVALID;
    *out = (unsigned)gi;
    return OK;
}

int nvmlDeviceGetComputeInstanceId(const Device *d, unsigned int *out) { ENTER(d); *out = 0; return d->slot < 0 ? INVALID : OK; }

int nvmlDeviceGetAttributes_v2(const Device *d, Attributes *out) {
    char profile[64];
    long long mib;
    int sm, gi, start;
    ENTER(d);
    if (d->slot < 0 || instance(d, profile, &mib, &sm, &gi, &start)) return UNSUPPORTED;
    memset(out, 0, sizeof *out);
    out->sm = (unsigned)sm, out->mib = (unsigned long long)mib;
    return OK;
}

int nvmlDeviceGetGpuInstanceById(const Device *d, unsigned int id, const Device **out) {
    char profile[64];
    long long mib;
    int sm, gi, start;
    ENTER(d);
    for (int slot = 1; slot <= SLOTS; slot++)
        if (!instance(&devices[d->index][slot], profile, &mib, &sm, &gi, &start) && gi == (int)id) return *out = &devices[d->index][slot], OK;
    return NOT_FOUND;
}

int nvmlGpuInstanceGetInfo(const Device *d, Instance *out) {
    char profile[64];
    long long mib;
    int sm, gi, start;
    ENTER(d);
    if (instance(d, profile, &mib, &sm, &gi, &start)) return NOT_FOUND;
    *out = (Instance){NULL, (unsigned)gi, 0, (unsigned)start, (unsigned)(profile[0] == '3' ? 4 : profile[0] - '0')};
    return OK;
}

typedef struct { unsigned int version, id, p2p, slices, instances, sm, engines[5]; unsigned long long mib; char name[96]; } ProfileInfo;

static int profile(const Device *d, unsigned int id, char *name, unsigned int *n, unsigned int *sm, unsigned long long *mib, char *starts, unsigned int *size) {
    char key[32], value[LINE];
    snprintf(key, sizeof key, "profile.%u", id);
    if (!find_of(d, key, value)) return UNSUPPORTED;
    return sscanf(value, "%63[^:]:%u:%u:%llu:%63[^/]/%u", name, n, sm, mib, starts, size) == 6 ? OK : INVALID;
}

int nvmlDeviceGetGpuInstanceProfileInfoV(const Device *d, unsigned int id, ProfileInfo *out) {
    char name[64], starts[64];
    unsigned int size;
    ENTER(d);
    if (out->version != 0x02000098) return VERSION;
    if (id >= 0x12) return INVALID;
    out->id = id + 100; /* not the number that was asked with, as with real drivers */
    int rc = profile(d, id, name, &out->instances, &out->sm, &out->mib, starts, &size);
    if (!rc) snprintf(out->name, sizeof out->name, "MIG %s", name);
    return rc;
}

int nvmlDeviceGetGpuInstancePossiblePlacements_v2(const Device *d, unsigned int id, unsigned int *out, unsigned int *count) {
    char name[64], starts[64], *rest = starts;
    unsigned int n, sm, size, room = *count;
    unsigned long long mib;
    ENTER(d);
    if (id < 100 || profile(d, id - 100, name, &n, &sm, &mib, starts, &size)) return INVALID;
    *count = 0;
    for (char *item; (item = strsep(&rest, ",")); (*count)++)
        if (out && *count < room) out[*count * 2] = (unsigned)atoi(item), out[*count * 2 + 1] = size;
    return out && *count > room ? SMALL : OK;
}

/* --- health --- */
int nvmlDeviceGetTotalEccErrors(const Device *d, unsigned int kind, unsigned int counter, unsigned long long *out) {
    (void)counter;
    ENTER(d);
    *out = kind ? (unsigned long long)number(d, "ecc", 0) : 0;
    return OK;
}

int nvmlDeviceGetRemappedRows(const Device *d, unsigned int *corr, unsigned int *unc, unsigned int *pending, unsigned int *failed) {
    ENTER(d);
    *corr = (unsigned)number(d, "remapped_correctable", 0), *unc = (unsigned)number(d, "remapped_uncorrectable", 0);
    *pending = (unsigned)number(d, "remap_pending", 0), *failed = (unsigned)number(d, "remap_failed", 0);
    return OK;
}

int nvmlDeviceGetRetiredPagesPendingStatus(const Device *d, unsigned int *out) { ENTER(d); OPTIONAL("retired_pending", out, unsigned); }
int nvmlDeviceGetTemperature(const Device *d, unsigned int sensor, unsigned int *out) { (void)sensor; ENTER(d); *out = (unsigned)number(d, "temp", 40); return OK; }
int nvmlDeviceGetPowerUsage(const Device *d, unsigned int *out) { ENTER(d); *out = (unsigned)number(d, "power_mw", 100000); return OK; }
int nvmlDeviceGetEnforcedPowerLimit(const Device *d, unsigned int *out) { ENTER(d); OPTIONAL("limit_mw", out, unsigned); }
int nvmlDeviceGetTotalEnergyConsumption(const Device *d, unsigned long long *out) { ENTER(d); OPTIONAL("energy_mj", out, unsigned long long); }

static int reasons(const Device *d, unsigned long long *out) { *out = (unsigned long long)number(d, "reasons", 1); return OK; }
int nvmlDeviceGetCurrentClocksThrottleReasons(const Device *d, unsigned long long *out) { ENTER(d); return reasons(d, out); }
#ifndef OLD_DRIVER
int nvmlDeviceGetCurrentClocksEventReasons(const Device *d, unsigned long long *out) { ENTER(d); return reasons(d, out); }

int nvmlDeviceGetFieldValues(const Device *d, int count, Field *fields) {
    ENTER(d);
    for (int i = 0; i < count; i++) {
        char value[LINE];
        int known = fields[i].id == 230 && find_of(d, "action", value);
        fields[i].ret = known ? OK : UNSUPPORTED;
        fields[i].type = 1;
        fields[i].value = known ? strtoull(value, NULL, 10) : 0;
    }
    return OK;
}
#endif

int nvmlDeviceGetRetiredPages(const Device *d, unsigned int cause, unsigned int *count, unsigned long long *out) {
    unsigned int n = (unsigned)number(d, "retired", 0), room = *count;
    (void)cause;
    ENTER(d);
    *count = n;
    if (!out) return n ? SMALL : OK;
    if (room < n) return SMALL;
    for (unsigned int i = 0; i < n; i++) out[i] = 0x1000ull * i;
    return OK;
}

/* --- GPM --- */
#ifndef OLD_DRIVER
typedef struct { int used; const Device *device; int gi; } GpmSample;
typedef struct { unsigned int id; int ret; double value; const char *names[3]; } GpmMetric;
typedef struct { unsigned int version, count; GpmSample *first, *second; GpmMetric metrics[477]; } GpmQuery;
static GpmSample samples[64]; /* no more than a test can need, so that a leak shows */

int nvmlGpmQueryDeviceSupport(const Device *d, unsigned int *out) {
    char value[LINE];
    ENTER(d);
    return out[1] = (unsigned)find_of(d, "gpm", value), OK;
}

int nvmlGpmSampleAlloc(GpmSample **out) {
    ENTER(NULL);
    for (int i = 0; i < 64; i++)
        if (!samples[i].used) return samples[i].used = 1, *out = &samples[i], OK;
    return 23;
}

int nvmlGpmSampleFree(GpmSample *sample) { ENTER(NULL); return sample->used = 0, OK; }
int nvmlGpmSampleGet(const Device *d, GpmSample *sample) { ENTER(d); return sample->device = d, sample->gi = -1, OK; }
int nvmlGpmMigSampleGet(const Device *d, unsigned int gi, GpmSample *sample) { ENTER(d); return sample->device = d, sample->gi = (int)gi, OK; }

int nvmlGpmMetricsGet(GpmQuery *query) {
    char key[32] = "gpm";
    ENTER(NULL);
    if (query->version != 1) return VERSION;
    if (query->first->gi >= 0) snprintf(key, sizeof key, "gpm.%d", query->first->gi);
    for (unsigned int i = 0; i < query->count; i++) {
        query->metrics[i].ret = query->metrics[i].id == 2 ? (int)number(query->first->device, "gpm_code", OK) : UNSUPPORTED;
        query->metrics[i].value = (double)number(query->first->device, key, 0);
    }
    return OK;
}

/* --- fabric and bus --- */
typedef struct { unsigned int version; unsigned char cluster[16]; int status; unsigned int clique, state, mask; unsigned char summary; } Fabric;

int nvmlDeviceGetGpuFabricInfoV(const Device *d, Fabric *out) {
    char value[LINE];
    unsigned int state, clique;
    ENTER(d);
    if ((out->version & 0xff) != (unsigned)number(d, "fabric_size", 0x28)) return VERSION;
    if (!find_of(d, "fabric", value) || sscanf(value, "%u:%u", &state, &clique) != 2) return UNSUPPORTED;
    memset(out->cluster, (int)clique, sizeof out->cluster);
    out->state = state, out->clique = clique;
    return OK;
}
#endif

int nvmlDeviceGetTopologyCommonAncestor(const Device *first, const Device *second, unsigned int *out) {
    long long a = number(first, "socket", -1), b = number(second, "socket", -2);
    ENTER(first);
    if (a < 0 || b < 0) return UNSUPPORTED;
    return *out = a == b ? 40 : 50, OK;
}

/* --- links --- */
int nvmlDeviceGetNvLinkState(const Device *d, unsigned int link, unsigned int *out) {
    char value[LINE], *rest = value;
    ENTER(d);
    if (!find_of(d, "links", value)) return UNSUPPORTED;
    for (unsigned int i = 0; i <= link; i++)
        if (!strsep(&rest, ",")) return INVALID;
    return *out = 1, OK;
}

static const char *end_of(const Device *d, unsigned int link, char *value) {
    char *rest = value, *item = NULL;
    if (!find_of(d, "links", value)) return "";
    for (unsigned int i = 0; i <= link; i++) item = strsep(&rest, ",");
    return item ? item : "";
}

int nvmlDeviceGetNvLinkRemoteDeviceType(const Device *d, unsigned int link, unsigned int *out) {
    char value[LINE];
    ENTER(d);
    return *out = strcmp(end_of(d, link, value), "switch") ? 0 : 2, OK;
}

int nvmlDeviceGetNvLinkRemotePciInfo_v2(const Device *d, unsigned int link, Pci *out) {
    char value[LINE];
    ENTER(d);
    memset(out, 0, sizeof *out);
    snprintf(out->bus_id, sizeof out->bus_id, "00000000:%02X:00.0", 0x10 + atoi(end_of(d, link, value)));
    return OK;
}

/* --- events --- */
int nvmlEventSetCreate(void **out) { ENTER(NULL); *out = &last_event; return OK; }
int nvmlEventSetFree(void *set) { (void)set; return OK; }
int nvmlDeviceGetSupportedEventTypes(const Device *d, unsigned long long *out) { ENTER(d); *out = 0x108; return OK; }
int nvmlDeviceRegisterEvents(const Device *d, unsigned long long mask, void *set) { (void)set; ENTER(d); return mask & ~0x108ull ? UNSUPPORTED : OK; }

static int next_event(Event *out) {
    int found = 0, id, index, xid, gi, ci;
    pthread_mutex_lock(&lock);
    reload();
    for (int i = 0; i < line_count && !found; i++)
        if ((gi = ci = -1, sscanf(lines[i], "event %d %d %d %d %d", &id, &index, &xid, &gi, &ci)) >= 3 && id > last_event && index < MAX_DEVICES) {
            last_event = id, found = 1;
            *out = (Event){&devices[index][0], xid < 0 ? (unsigned long long)-xid : 0x8, xid < 0 ? 0 : (unsigned long long)xid, (unsigned)gi, (unsigned)ci};
        }
    pthread_mutex_unlock(&lock);
    return found;
}

int nvmlEventSetWait_v2(void *set, Event *out, unsigned int timeout_ms) {
    (void)set;
    ENTER(NULL);
    for (unsigned int waited = 0; waited < timeout_ms; waited += 10) {
        if (next_event(out)) return OK;
        usleep(10000);
    }
    return TIMEOUT;
}
