"""Dynamic Resource Allocation: what a DRA driver of this node publishes. A reader of facts, verdicts and rules; pure.

    tables     entry ─► its type: driver, name, attributes, capacities; a vendor's: `nvidia`, `amd`, `intel_gpu`, `own`
    pools      offers of way `cdi`, verdicts ─► devices by driver: even, within the API's limits; others with reasons
    classes    pools, rules ─► DeviceClasses: the vendors' own, and one for each resource name that none of them has
    objects    pools and classes ─► the objects of resource.k8s.io/v1

A vendor's driver name means its drop-in: the devices have exactly the attributes that the vendor's own driver gives
them, under the same names, so nothing of devherd's is in them, no resource name either. Drivers that are devherd's own
(`fpga.intel.com`, `rdma.devherd.io`, …) have a fixed schema a type, with the resource name in `resourceName`.

CEL ends the allocation of every pod when it meets a device without the attribute that it reads. So all devices of one
type have the same attributes; `pools` says how that is kept.

What limits a device, a slice and a pool: https://kubernetes.io/docs/reference/kubernetes-api/resource/resource-slice-v1/
"""
