package main

import (
	"fmt"
	"sort"

	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/kubernetes/pkg/kubelet/cm/topologymanager"
)

// deviceIDs are sorted device ids by resource name.
type deviceIDs map[string][]string

// nodeResources are what the kubelet writes to its Node. Deleted are resources that it has just forgotten.
type nodeResources struct {
	Capacity    map[string]int64 `json:"capacity"`
	Allocatable map[string]int64 `json:"allocatable"`
	Deleted     []string         `json:"deleted"`
}

type hint struct {
	Nodes     []int `json:"nodes"`
	Preferred bool  `json:"preferred"`
}

func (k *kubelet) capacity() nodeResources {
	capacity, allocatable, deleted := k.deviceCapacity()
	return nodeResources{Capacity: amounts(capacity), Allocatable: amounts(allocatable), Deleted: deleted}
}

func amounts(list v1.ResourceList) map[string]int64 {
	numbers := map[string]int64{}
	for name, quantity := range list {
		numbers[string(name)] = quantity.Value()
	}
	return numbers
}

// allocatableDevices are the healthy devices of each resource with their NUMA nodes; null for one without topology.
func (k *kubelet) allocatableDevices() map[string]map[string][]int64 {
	healthy := map[string]map[string][]int64{}
	for resource, devices := range k.healthyDevices() {
		healthy[resource] = map[string][]int64{}
		for id, device := range devices {
			var nodes []int64
			for _, node := range device.GetTopology().GetNodes() {
				nodes = append(nodes, node.GetID())
			}
			healthy[resource][id] = nodes
		}
	}
	return healthy
}

func (k *kubelet) idsOf(uid types.UID, container string) deviceIDs {
	ids := deviceIDs{}
	for resource, devices := range k.devices.GetDevices(string(uid), container) {
		for id := range devices {
			ids[resource] = append(ids[resource], id)
		}
		sort.Strings(ids[resource])
	}
	return ids
}

// podDevices are the devices of each container of a pod.
func (k *kubelet) podDevices(uid string) (map[string]deviceIDs, error) {
	pod := k.pod(uid)
	if pod == nil {
		return nil, fmt.Errorf("no pod %q", uid)
	}
	held := map[string]deviceIDs{}
	for _, container := range allContainers(pod) {
		held[container.Name] = k.idsOf(pod.UID, container.Name)
	}
	return held, nil
}

// podHealth is allocatedResourcesStatus of the pod's status: container, resource, device, health.
func (k *kubelet) podHealth(uid string) (map[string]map[string]map[string]string, error) {
	pod := k.pod(uid)
	if pod == nil {
		return nil, fmt.Errorf("no pod %q", uid)
	}
	status := v1.PodStatus{}
	for _, container := range pod.Spec.Containers {
		status.ContainerStatuses = append(status.ContainerStatuses, v1.ContainerStatus{Name: container.Name})
	}
	k.addHealth(pod, &status)
	health := map[string]map[string]map[string]string{}
	for _, container := range status.ContainerStatuses {
		health[container.Name] = map[string]map[string]string{}
		for _, resource := range container.AllocatedResourcesStatus {
			devices := map[string]string{}
			for _, device := range resource.Resources {
				devices[string(device.ResourceID)] = string(device.Health)
			}
			health[container.Name][string(resource.Name)] = devices
		}
	}
	return health, nil
}

// hints are what the device manager tells the topology manager for each container of a pod.
func (k *kubelet) hints(spec podSpec) (map[string]map[string][]hint, error) {
	pod, err := spec.pod()
	if err != nil {
		return nil, err
	}
	k.syncLoop.Lock()
	defer k.syncLoop.Unlock()
	told := map[string]map[string][]hint{}
	for _, container := range allContainers(pod) {
		told[container.Name] = map[string][]hint{}
		for resource, list := range k.hintsOf(pod, container) {
			told[container.Name][resource] = plainHints(list)
		}
	}
	return told, nil
}

// plainHints keeps nil apart from empty: no preference, and nothing possible.
func plainHints(list []topologymanager.TopologyHint) []hint {
	if list == nil {
		return nil
	}
	plain := []hint{}
	for _, each := range list {
		one := hint{Preferred: each.Preferred}
		if each.NUMANodeAffinity != nil {
			one.Nodes = each.NUMANodeAffinity.GetBits()
		}
		plain = append(plain, one)
	}
	return plain
}
