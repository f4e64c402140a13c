/* NVML's layouts as the stub has them; test_nvml_header.py compares them with those of NVIDIA's header. */

typedef struct { int gpu; const char *line; } device_t;
typedef struct { char legacy[16]; unsigned domain, bus, device, device_id, subsystem_id; char bus_id[32]; } pci_t;
typedef struct { unsigned long long total, free, used; } memory_t;
typedef struct { unsigned version, value; } addressing_t;
typedef struct {
    unsigned multiprocessors, copies, decoders, encoders, jpegs, flows, gpu_slices, compute_slices;
    unsigned long long mebibytes;
} attributes_t;
typedef struct { device_t *device; unsigned id, profile_id, start, size; } instance_t;
typedef struct { unsigned id, rest[9]; unsigned long long mebibytes; } profile_t;
typedef struct { device_t *device; unsigned long long kind, data; unsigned gpu_instance, compute_instance; } event_t;
typedef struct {
    unsigned id, scope;
    long long timestamp, latency;
    int type, returned;
    union { double number; unsigned narrow; unsigned long long wide; } value;
} field_t;
typedef struct {
    unsigned version;
    unsigned char cluster[16];
    int status;
    unsigned clique;
    unsigned char state;
    unsigned mask;
    unsigned char summary;
} fabric_t;

typedef struct { unsigned version; unsigned long long counts[11]; unsigned exceeded; } sram_t;
typedef struct { unsigned version, channel, cluster; } repair_t;
typedef struct { unsigned flag; } unrepairable_t;
