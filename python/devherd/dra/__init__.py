"""Dynamic Resource Allocation: what a DRA driver of this node publishes, and the two processes that serve all drivers.

What is published is a reader of facts, verdicts and rules, and pure:

    tables     entry ─► its type: driver, name, attributes, capacities; a vendor's: `nvidia`, `amd`, `intel_gpu`, `own`
    pools      offers of way `cdi`, verdicts ─► devices by driver: even, within the API's limits; others with reasons
    classes    pools, rules ─► DeviceClasses: the vendors' own, and one for each resource name that none of them has
    objects    pools and classes ─► the objects of resource.k8s.io/v1
    slice_plan slices as wanted and as they are ─► writes, which process `kubernetes` does (`kubernetes/slices.py`)

`pool_files` makes the pools of the scanner's files, for all processes.

What is served, by `main` in processes `dra:a` and `dra:b`, each for every driver:

    driver         two sockets of one driver (`sockets`), registration, hand-over to the next instance
    service        the kubelet's calls, a claim each ─► `preparation`
    preparation    reads the claim (`claim_reader`, `claim`), notes it (`records`), and answers CDI ids (`claim_specs`);
                   `left_over` says when a device of a claim that is gone is free
    health         the kubelet's streams of health
    registrations  what a process says of its drivers

A vendor's driver name means its drop-in: the devices have exactly the attributes that the vendor's own driver gives
them, under the same names, so nothing of devherd's is in them, no resource name either. Drivers that are devherd's own
(`fpga.intel.com`, `rdma.devherd.io`, …) have a fixed schema a type, with the resource name in `resourceName`.

CEL ends the allocation of every pod when it meets a device without the attribute that it reads. So all devices of one
type have the same attributes; `pools` says how that is kept.

What limits a device, a slice and a pool: https://kubernetes.io/docs/reference/kubernetes-api/resource/resource-slice-v1/
"""
