/* A library with NVML's C interface that tells what a text file says; DEVHERD_NVML_STUB names the file.
 *
 * Signatures and layouts are those of https://docs.nvidia.com/deploy/nvml-api/. One line of the file a statement, words
 * apart by spaces, `_` in a value for a space:
 *
 *   driver VERSION | cuda NUMBER
 *   gpu key=value ...            uuid pci name minor memory major minor_capability mig (absent: no MIG; 0, 1) slots
 *                                brand architecture addressing (their numbers)
 *   mig gpu=N slot=N ...         uuid name gi ci gpu_slices compute_slices memory profile (its NVML number)
 *                                start size (its placement)
 *                                late=1: made after the container of a process without rights started
 *   guarded                      as NVIDIA's driver: without CAP_SYS_ADMIN, the memory of a GPU in MIG mode and its GPU
 *                                instances are refused, and late MIG devices are not listed
 *   link gpu=N link=N type=N pci=ADDRESS vendor=HEX
 *   event NUMBER gpu=N kind=BITS data=N [gi=N ci=N]
 *                                told once to each event set in which the GPU was registered before; NUMBER grows
 *   events gpu=N types=BITS      which events the GPU has, all unless said
 *   field gpu=N id=N value=N [type=N] [link=N] [return=CODE]       others are not supported
 *   fabric gpu=N state=N status=N summary=N cluster=HEX(32) clique=N version=N
 *     (version: the newest that the driver knows; 3 without it)
 *   clocks gpu=N reasons=BITS
 *   sram gpu=N exceeded=0|1 | repair gpu=N channel=0|1 cluster=0|1 | unrepairable gpu=N flag=0|1
 *   persistence gpu=N mode=0|1 | mode gpu=N mig=0|1 (from now on, instead of that of its line)
 *   absent gpu=N                 NVML does not list the GPU, which the driver cannot start
 *   lost gpu=N                   every call on the GPU answers that it is lost, also later, until the library is initialised again
 *   fail FUNCTION CODE [gpu=N]   it answers the code (for one GPU)
 *   hang FUNCTION [gpu=N]        it does not answer as long as the file says so
 *   crash FUNCTION               SIGSEGV
 *
 * OLD_DRIVER leaves out what drivers before 450 did not have.
 */
#include <linux/capability.h>
#include <signal.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/syscall.h>
#include <unistd.h>

#include "layouts.h"

#define MOST 64
#define MOST_LINES 2048
#define LINE 512

enum {
    SUCCESS = 0, UNINITIALIZED = 1, INVALID_ARGUMENT = 2, NOT_SUPPORTED = 3, NO_PERMISSION = 4, NOT_FOUND = 6, INSUFFICIENT_SIZE = 7,
    TIMEOUT = 10, GPU_IS_LOST = 15, VERSION_MISMATCH = 25,
};

typedef struct { char lines[MOST_LINES][LINE]; int count; } script_t;
static script_t script;
static device_t gpus[MOST], migs[MOST * 2];
static int gpu_count, mig_count, initialised;
static char lost[MOST];

static void read_script(void) {
    const char *path = getenv("DEVHERD_NVML_STUB");
    FILE *file = path ? fopen(path, "r") : NULL;
    script.count = 0;
    while (file && script.count < MOST_LINES && fgets(script.lines[script.count], LINE, file)) {
        script.lines[script.count][strcspn(script.lines[script.count], "\n")] = 0;
        script.count++;
    }
    if (file) fclose(file);
}

static int is(const char *line, const char *word) {
    size_t length = strlen(word);
    return !strncmp(line, word, length) && (line[length] == ' ' || !line[length]);
}

/* The text of `key=text` in a line, `_` as a space; NULL when the line has no such key. */
static const char *text(const char *line, const char *key) {
    static char found[8][LINE];
    static int turn;
    char sought[64];
    snprintf(sought, sizeof sought, " %s=", key);
    const char *at = line ? strstr(line, sought) : NULL;
    if (!at) return NULL;
    char *copy = found[turn = (turn + 1) % 8];
    snprintf(copy, LINE, "%s", at + strlen(sought));
    copy[strcspn(copy, " ")] = 0;
    for (char *place = copy; *place; place++)
        if (*place == '_') *place = ' ';
    return copy;
}

static unsigned long long number(const char *line, const char *key) {
    const char *found = text(line, key);
    return found ? strtoull(found, NULL, 0) : 0;
}

static int told_to_hang(const char *function, int gpu) {
    read_script();
    for (int index = 0; index < script.count; index++) {
        const char *line = script.lines[index];
        if (!is(line, "hang") || !is(line + 5, function)) continue;
        const char *only = text(line, "gpu");
        if (!only || atoi(only) == gpu) return 1;
    }
    return 0;
}

/* What the file says about a call; 0 = answer. */
static int fate(const char *function, int gpu) {
    while (told_to_hang(function, gpu)) usleep(10000);
    if (gpu >= 0 && !initialised) return UNINITIALIZED;
    for (int index = 0; index < script.count; index++) {
        const char *line = script.lines[index];
        if (is(line, "crash") && is(line + 6, function)) raise(SIGSEGV);
        if (gpu >= 0 && gpu < MOST && is(line, "lost") && number(line, "gpu") == (unsigned)gpu) lost[gpu] = 1;
        if (!is(line, "fail") || !is(line + 5, function)) continue;
        const char *only = text(line, "gpu");
        if (!only || atoi(only) == gpu) return atoi(line + 5 + strlen(function));
    }
    return gpu >= 0 && gpu < MOST && lost[gpu] ? GPU_IS_LOST : SUCCESS;
}

#define FATE(gpu) do { int code = fate(__func__, gpu); if (code) return code; } while (0)

static int put(char *buffer, unsigned length, const char *value) {
    if (!value) return NOT_SUPPORTED;
    if (strlen(value) >= length) return INSUFFICIENT_SIZE;
    strcpy(buffer, value);
    return SUCCESS;
}

static const char *statement(const char *word) {
    for (int index = 0; index < script.count; index++)
        if (is(script.lines[index], word)) return script.lines[index] + strlen(word) + 1;
    return NULL;
}

/* Whether the caller may monitor all MIG devices. */
static int monitors(void) {
    struct __user_cap_header_struct header = {_LINUX_CAPABILITY_VERSION_3, 0};
    struct __user_cap_data_struct has[_LINUX_CAPABILITY_U32S_3];
    if (!statement("guarded")) return 1;
    return !syscall(SYS_capget, &header, has) && has[0].effective >> CAP_SYS_ADMIN & 1;
}

static void fill(pci_t *pci, const char *address, unsigned vendor) {
    unsigned function;
    memset(pci, 0, sizeof *pci);
    if (!address || sscanf(address, "%x:%x:%x.%x", &pci->domain, &pci->bus, &pci->device, &function) != 4) return;
    pci->device_id = 0x20b00000u | vendor;
    snprintf(pci->bus_id, sizeof pci->bus_id, "%08X:%02X:%02X.0", pci->domain, pci->bus, pci->device);
}

/* ---- library and system ---- */

static int is_absent(int gpu) {
    for (int index = 0; index < script.count; index++)
        if (is(script.lines[index], "absent") && number(script.lines[index], "gpu") == (unsigned)gpu) return 1;
    return 0;
}

static int start(void) {
    if (initialised++) return SUCCESS;
    gpu_count = mig_count = 0;
    memset(lost, 0, sizeof lost);
    for (int index = 0; index < script.count; index++) {
        const char *line = strdup(script.lines[index]);
        if (is(line, "gpu")) gpus[gpu_count] = (device_t){gpu_count, line}, gpu_count++;
        if (is(line, "mig")) migs[mig_count++] = (device_t){(int)number(line, "gpu"), line};
    }
    return SUCCESS;
}

#ifdef OLD_DRIVER
int nvmlInit(void) { FATE(-1); return start(); }
#else
int nvmlInit_v2(void) { FATE(-1); return start(); }
#endif

int nvmlShutdown(void) {
    FATE(-1);
    if (!initialised) return UNINITIALIZED;
    initialised--;
    return SUCCESS;
}

const char *nvmlErrorString(int code) {
    switch (code) {
    case 3: return "Not Supported";
    case 4: return "Insufficient Permissions";
    case 9: return "Driver Not Loaded";
    case 15: return "GPU is lost";
    case 18: return "Driver/library version mismatch";
    default: return "Unknown Error";
    }
}

int nvmlSystemGetDriverVersion(char *version, unsigned length) { FATE(-1); return put(version, length, statement("driver")); }

static int cuda(int *version) {
    const char *told = statement("cuda");
    if (!told) return NOT_SUPPORTED;
    *version = atoi(told);
    return SUCCESS;
}

/* ---- GPUs ---- */

/* The GPU with this index of NVML's; those that are absent have none. */
static int gpu_at(unsigned index, device_t **device) {
    for (int gpu = 0; gpu < gpu_count; gpu++) {
        if (is_absent(gpu)) continue;
        if (!index--) return *device = &gpus[gpu], SUCCESS;
    }
    return INVALID_ARGUMENT;
}

static unsigned listed(void) {
    unsigned count = 0;
    for (int gpu = 0; gpu < gpu_count; gpu++) count += !is_absent(gpu);
    return count;
}

#ifdef OLD_DRIVER
int nvmlSystemGetCudaDriverVersion(int *version) { FATE(-1); return cuda(version); }
int nvmlDeviceGetCount(unsigned *count) { FATE(-1); *count = listed(); return SUCCESS; }
int nvmlDeviceGetHandleByIndex(unsigned index, device_t **device) { FATE((int)index); return gpu_at(index, device); }
int nvmlDeviceGetPciInfo_v2(device_t *device, pci_t *pci) {
    FATE(device->gpu);
    pci_t whole;
    fill(&whole, text(device->line, "pci"), 0x10de);
    memcpy(pci, &whole, 36);
    return SUCCESS;
}
#else
int nvmlSystemGetCudaDriverVersion_v2(int *version) { FATE(-1); return cuda(version); }
int nvmlDeviceGetCount_v2(unsigned *count) { FATE(-1); *count = listed(); return SUCCESS; }
int nvmlDeviceGetHandleByIndex_v2(unsigned index, device_t **device) { FATE((int)index); return gpu_at(index, device); }
int nvmlDeviceGetPciInfo_v3(device_t *device, pci_t *pci) {
    FATE(device->gpu);
    fill(pci, text(device->line, "pci"), 0x10de);
    return SUCCESS;
}
#endif

int nvmlDeviceGetUUID(device_t *device, char *uuid, unsigned length) {
    FATE(device->gpu);
    return put(uuid, length, text(device->line, "uuid"));
}

int nvmlDeviceGetName(device_t *device, char *name, unsigned length) {
    FATE(device->gpu);
    return put(name, length, text(device->line, "name"));
}

int nvmlDeviceGetSerial(device_t *device, char *serial, unsigned length) {
    FATE(device->gpu);
    return put(serial, length, text(device->line, "serial"));
}

int nvmlDeviceGetMinorNumber(device_t *device, unsigned *minor) {
    FATE(device->gpu);
    if (!text(device->line, "minor")) return NOT_SUPPORTED;
    *minor = number(device->line, "minor");
    return SUCCESS;
}

int nvmlDeviceGetMemoryInfo(device_t *device, memory_t *memory) {
    FATE(device->gpu);
    if (!text(device->line, "memory")) return NOT_SUPPORTED;
    if (number(device->line, "mig") && !monitors()) return NO_PERMISSION;
    memset(memory, 0, sizeof *memory);
    memory->total = number(device->line, "memory");
    return SUCCESS;
}

int nvmlDeviceGetCudaComputeCapability(device_t *device, int *major, int *minor) {
    FATE(device->gpu);
    *major = number(device->line, "major");
    *minor = number(device->line, "minor_capability");
    return SUCCESS;
}

static int number_of(device_t *device, const char *key, unsigned *value) {
    if (!text(device->line, key)) return NOT_SUPPORTED;
    *value = number(device->line, key);
    return SUCCESS;
}

int nvmlDeviceGetBrand(device_t *device, unsigned *brand) {
    FATE(device->gpu);
    return number_of(device, "brand", brand);
}

#ifndef OLD_DRIVER
int nvmlDeviceGetArchitecture(device_t *device, unsigned *architecture) {
    FATE(device->gpu);
    return number_of(device, "architecture", architecture);
}

int nvmlDeviceGetAddressingMode(device_t *device, addressing_t *mode) {
    FATE(device->gpu);
    if (mode->version != (sizeof *mode | 1u << 24)) return VERSION_MISMATCH;
    return number_of(device, "addressing", &mode->value);
}
#endif

/* ---- NVLink ---- */

static const char *link_line(device_t *device, unsigned link) {
    for (int index = 0; index < script.count; index++) {
        const char *line = script.lines[index];
        if (is(line, "link") && number(line, "gpu") == (unsigned)device->gpu && number(line, "link") == link) return line;
    }
    return NULL;
}

int nvmlDeviceGetNvLinkState(device_t *device, unsigned link, unsigned *active) {
    FATE(device->gpu);
    if (link >= 18) return INVALID_ARGUMENT;
    *active = link_line(device, link) != NULL;
    return SUCCESS;
}

#ifdef OLD_DRIVER
int nvmlDeviceGetNvLinkRemotePciInfo(device_t *device, unsigned link, pci_t *pci) {
#else
int nvmlDeviceGetNvLinkRemotePciInfo_v2(device_t *device, unsigned link, pci_t *pci) {
#endif
    FATE(device->gpu);
    const char *line = link_line(device, link);
    const char *vendor = text(line, "vendor");
    pci_t whole;
    fill(&whole, text(line, "pci"), vendor ? strtoul(vendor, NULL, 16) : 0x10de);
#ifdef OLD_DRIVER
    memcpy(pci, &whole, 36);
#else
    *pci = whole;
#endif
    return line ? SUCCESS : INVALID_ARGUMENT;
}

#ifndef OLD_DRIVER
int nvmlDeviceGetNvLinkRemoteDeviceType(device_t *device, unsigned link, unsigned *type) {
    FATE(device->gpu);
    const char *line = link_line(device, link);
    if (!line) return INVALID_ARGUMENT;
    *type = number(line, "type");
    return SUCCESS;
}

/* ---- MIG ---- */

static const char *line_of(const char *word, int gpu) {
    for (int index = 0; index < script.count; index++)
        if (is(script.lines[index], word) && number(script.lines[index], "gpu") == (unsigned)gpu) return script.lines[index];
    return NULL;
}

int nvmlDeviceGetMigMode(device_t *device, unsigned *current, unsigned *pending) {
    FATE(device->gpu);
    const char *told = line_of("mode", device->gpu);
    if (told) *current = *pending = number(told, "mig");
    if (told && text(told, "pending")) *pending = number(told, "pending");
    if (told) return SUCCESS;
    if (!text(device->line, "mig")) return NOT_SUPPORTED;
    *current = *pending = number(device->line, "mig");
    return SUCCESS;
}

int nvmlDeviceGetMaxMigDeviceCount(device_t *device, unsigned *count) {
    FATE(device->gpu);
    const char *slots = text(device->line, "slots");
    *count = slots ? atoi(slots) : 7;
    return SUCCESS;
}

int nvmlDeviceGetMigDeviceHandleByIndex(device_t *device, unsigned slot, device_t **mig) {
    FATE(device->gpu);
    for (int index = 0; index < mig_count; index++)
        if (migs[index].gpu == device->gpu && number(migs[index].line, "slot") == slot) {
            if (number(migs[index].line, "late") && !monitors()) return NOT_FOUND;
            *mig = &migs[index];
            return SUCCESS;
        }
    return NOT_FOUND;
}

int nvmlDeviceGetGpuInstanceId(device_t *mig, unsigned *id) { FATE(mig->gpu); *id = number(mig->line, "gi"); return SUCCESS; }
int nvmlDeviceGetComputeInstanceId(device_t *mig, unsigned *id) { FATE(mig->gpu); *id = number(mig->line, "ci"); return SUCCESS; }

int nvmlDeviceGetAttributes_v2(device_t *mig, attributes_t *attributes) {
    FATE(mig->gpu);
    memset(attributes, 0, sizeof *attributes);
    attributes->gpu_slices = number(mig->line, "gpu_slices");
    attributes->compute_slices = number(mig->line, "compute_slices");
    attributes->mebibytes = number(mig->line, "memory");
    attributes->multiprocessors = number(mig->line, "multiprocessors");
    attributes->copies = number(mig->line, "copies");
    attributes->decoders = number(mig->line, "decoders");
    return SUCCESS;
}

int nvmlDeviceGetGpuInstanceById(device_t *device, unsigned id, device_t **instance) {
    FATE(device->gpu);
    if (!monitors()) return NO_PERMISSION;
    for (int index = 0; index < mig_count; index++)
        if (migs[index].gpu == device->gpu && number(migs[index].line, "gi") == id) {
            *instance = &migs[index];
            return SUCCESS;
        }
    return NOT_FOUND;
}

/* A GPU's own ids for profiles are other numbers than NVML's. */
static unsigned own_profile_id(unsigned profile) { return 19 - profile; }

int nvmlGpuInstanceGetInfo(device_t *instance, instance_t *info) {
    FATE(instance->gpu);
    *info = (instance_t){
        &gpus[instance->gpu], number(instance->line, "gi"), 0, number(instance->line, "start"), number(instance->line, "size"),
    };
    info->profile_id = own_profile_id(number(instance->line, "profile"));
    return SUCCESS;
}

int nvmlDeviceGetGpuInstanceProfileInfo(device_t *device, unsigned profile, profile_t *info) {
    FATE(device->gpu);
    if (profile == 5 || profile == 6) return NOT_SUPPORTED;
    if (profile > 17) return INVALID_ARGUMENT;
    memset(info, 0, sizeof *info);
    info->id = own_profile_id(profile);
    return SUCCESS;
}

/* ---- health ---- */

typedef struct { unsigned long long types[MOST], told; int made; } set_t;
int nvmlDeviceGetHandleByPciBusId_v2(const char *address, device_t **device) {
    unsigned sought[4], here[4];
    if (!address || sscanf(address, "%x:%x:%x.%x", &sought[0], &sought[1], &sought[2], &sought[3]) != 4) return INVALID_ARGUMENT;
    for (int index = 0; index < gpu_count; index++) {
        const char *place = text(gpus[index].line, "pci");
        if (!place || sscanf(place, "%x:%x:%x.%x", &here[0], &here[1], &here[2], &here[3]) != 4) continue;
        if (memcmp(sought, here, sizeof here)) continue;
        FATE(index);
        if (is_absent(index)) return NOT_FOUND;
        *device = &gpus[index];
        return SUCCESS;
    }
    FATE(-1);
    return initialised ? NOT_FOUND : UNINITIALIZED;
}

int nvmlEventSetCreate(set_t **set) {
    FATE(-1);
    if (!initialised) return UNINITIALIZED;
    *set = calloc(1, sizeof **set);
    (*set)->made = 1;
    for (int index = 0; index < script.count; index++)
        if (is(script.lines[index], "event")) (*set)->told = strtoull(script.lines[index] + 5, NULL, 10);
    return SUCCESS;
}

int nvmlEventSetFree(set_t *set) {
    FATE(-1);
    if (!set || !set->made) return INVALID_ARGUMENT;
    set->made = 0;
    return SUCCESS;
}

int nvmlDeviceGetSupportedEventTypes(device_t *device, unsigned long long *types) {
    FATE(device->gpu);
    const char *told = line_of("events", device->gpu);
    *types = told ? number(told, "types") : 0xff9f;
    return SUCCESS;
}

int nvmlDeviceRegisterEvents(device_t *device, unsigned long long types, set_t *set) {
    FATE(device->gpu);
    const char *told = line_of("events", device->gpu);
    if (!set || !set->made) return INVALID_ARGUMENT;
    if (types & ~(told ? number(told, "types") : 0xff9full)) return NOT_SUPPORTED;
    set->types[device->gpu] |= types;
    return SUCCESS;
}

static int next(set_t *set, event_t *event) {
    for (int index = 0; index < script.count; index++) {
        const char *line = script.lines[index];
        unsigned long long turn = is(line, "event") ? strtoull(line + 5, NULL, 10) : 0;
        if (turn <= set->told) continue;
        set->told = turn;
        int gpu = number(line, "gpu");
        if (!(set->types[gpu] & number(line, "kind"))) continue;
        *event = (event_t){&gpus[gpu], number(line, "kind"), number(line, "data"), ~0u, ~0u};
        if (text(line, "gi")) event->gpu_instance = number(line, "gi");
        if (text(line, "ci")) event->compute_instance = number(line, "ci");
        return 1;
    }
    return 0;
}

int nvmlEventSetWait_v2(set_t *set, event_t *event, unsigned milliseconds) {
    FATE(-1);
    if (!initialised) return UNINITIALIZED;
    if (!set || !set->made) return INVALID_ARGUMENT;
    for (unsigned waited = 0;; waited += 5) {
        if (next(set, event)) return SUCCESS;
        if (waited >= milliseconds) return TIMEOUT;
        usleep(5000);
        read_script();
    }
}

int nvmlDeviceGetFieldValues(device_t *device, int count, field_t *values) {
    FATE(device->gpu);
    for (int index = 0; index < count; index++) {
        field_t *value = &values[index];
        value->returned = NOT_SUPPORTED;
        for (int at = 0; at < script.count; at++) {
            const char *line = script.lines[at];
            if (!is(line, "field") || number(line, "gpu") != (unsigned)device->gpu || number(line, "id") != value->id) continue;
            if (number(line, "link") != value->scope) continue;
            value->type = text(line, "type") ? (int)number(line, "type") : 1;
            value->value.wide = number(line, "value");
            value->returned = text(line, "return") ? (int)number(line, "return") : SUCCESS;
        }
    }
    return SUCCESS;
}

static unsigned fabric_version(const char *told) {
    return told && text(told, "version") ? number(told, "version") : 3;
}

static int fill_fabric(const char *told, fabric_t *fabric) {
    if (!told) return NOT_SUPPORTED;
    fabric->state = number(told, "state");
    fabric->status = number(told, "status");
    fabric->clique = number(told, "clique");
    for (int byte = 0; text(told, "cluster") && byte < 16; byte++)
        sscanf(text(told, "cluster") + 2 * byte, "%2hhx", &fabric->cluster[byte]);
    return SUCCESS;
}

/* The second version ends before `summary`. */
int nvmlDeviceGetGpuFabricInfoV(device_t *device, fabric_t *fabric) {
    FATE(device->gpu);
    const char *told = line_of("fabric", device->gpu);
    unsigned known = fabric_version(told), asked = fabric->version >> 24;
    unsigned size = asked == 3 ? sizeof *fabric : offsetof(fabric_t, summary);
    if (asked < 2 || asked > 3 || asked > known || fabric->version != (size | asked << 24)) return VERSION_MISMATCH;
    if (asked == 3 && told) fabric->summary = number(told, "summary");
    return fill_fabric(told, fabric);
}

/* The first version begins behind `version`, and ends with `state`. */
int nvmlDeviceGetGpuFabricInfo(device_t *device, void *first) {
    FATE(device->gpu);
    fabric_t fabric = {0};
    int returned = fill_fabric(line_of("fabric", device->gpu), &fabric);
    memcpy(first, &fabric.cluster, 28);
    return returned;
}

int nvmlDeviceGetCurrentClocksEventReasons(device_t *device, unsigned long long *reasons) {
    FATE(device->gpu);
    const char *told = line_of("clocks", device->gpu);
    if (!told) return NOT_SUPPORTED;
    *reasons = number(told, "reasons");
    return SUCCESS;
}

int nvmlDeviceGetPersistenceMode(device_t *device, unsigned *mode) {
    FATE(device->gpu);
    const char *told = line_of("persistence", device->gpu);
    if (!told) return NOT_SUPPORTED;
    *mode = number(told, "mode");
    return SUCCESS;
}

int nvmlDeviceGetSramEccErrorStatus(device_t *device, sram_t *status) {
    FATE(device->gpu);
    if (status->version != (sizeof *status | 1u << 24)) return VERSION_MISMATCH;
    const char *told = line_of("sram", device->gpu);
    if (!told) return NOT_SUPPORTED;
    status->exceeded = number(told, "exceeded");
    return SUCCESS;
}

int nvmlDeviceGetRepairStatus(device_t *device, repair_t *status) {
    FATE(device->gpu);
    if (status->version != (sizeof *status | 1u << 24)) return VERSION_MISMATCH;
    const char *told = line_of("repair", device->gpu);
    if (!told) return NOT_SUPPORTED;
    status->channel = number(told, "channel");
    status->cluster = number(told, "cluster");
    return SUCCESS;
}

int nvmlDeviceGetUnrepairableMemoryFlag_v1(device_t *device, unrepairable_t *status) {
    FATE(device->gpu);
    const char *told = line_of("unrepairable", device->gpu);
    if (!told) return NOT_SUPPORTED;
    status->flag = number(told, "flag");
    return SUCCESS;
}
#endif
