//go:build kubernetes_1_34 || kubernetes_1_35 || kubernetes_1_36

package main

import (
	cadvisor "github.com/google/cadvisor/info/v1"
	v1 "k8s.io/api/core/v1"
	api "k8s.io/kubelet/pkg/apis/podresources/v1"
	"k8s.io/kubernetes/pkg/kubelet/cm/devicemanager"
	"k8s.io/kubernetes/pkg/kubelet/cm/topologymanager"
	"k8s.io/kubernetes/pkg/kubelet/lifecycle"
)

// See since_1_37.go.

type numaNode = cadvisor.Node

func newTopologyManager(nodes []numaNode, options startOptions) (topologymanager.Manager, error) {
	return topologymanager.NewManager(nodes, options.Policy, options.Scope, options.PolicyOptions)
}

func (k *kubelet) admitPod(pod *v1.Pod) lifecycle.PodAdmitResult {
	return k.topology.Admit(&lifecycle.PodAdmitAttributes{Pod: pod})
}

func (k *kubelet) addContainer(pod *v1.Pod, container *v1.Container) {
	k.topology.AddContainer(pod, container, containerID(pod, container))
}

func (k *kubelet) removeContainer(pod *v1.Pod, container *v1.Container) error {
	return k.topology.RemoveContainer(containerID(pod, container))
}

func (k *kubelet) freeDevices() { k.devices.UpdateAllocatedDevices() }

func (k *kubelet) deviceCapacity() (capacity, allocatable v1.ResourceList, deleted []string) {
	return k.devices.GetCapacity()
}

func (k *kubelet) healthyDevices() devicemanager.ResourceDeviceInstances {
	return k.devices.GetAllocatableDevices()
}

func (k *kubelet) addHealth(pod *v1.Pod, status *v1.PodStatus) {
	k.devices.UpdateAllocatedResourcesStatus(pod, status)
}

func (k *kubelet) addClaimHealth(pod *v1.Pod, status *v1.PodStatus) {
	k.claims.UpdateAllocatedResourcesStatus(pod, status)
}

func (k *kubelet) hintsOf(pod *v1.Pod, container *v1.Container) map[string][]topologymanager.TopologyHint {
	return k.devices.GetTopologyHints(pod, container)
}

func (d podResourcesDevices) UpdateAllocatedDevices() { d.manager.UpdateAllocatedDevices() }

func (d podResourcesDevices) GetAllocatableDevices() []*api.ContainerDevices {
	return containerDevices(d.manager.GetAllocatableDevices())
}

func (noOtherResources) GetCPUs(string, string) []int64 { return []int64{} }
func (noOtherResources) GetMemory(string, string) []*api.ContainerMemory {
	return []*api.ContainerMemory{}
}
func (noOtherResources) GetAllocatableMemory() []*api.ContainerMemory {
	return []*api.ContainerMemory{}
}
func (c podResourcesClaims) GetDynamicResources(pod *v1.Pod, container *v1.Container) []*api.DynamicResource {
	return c.kubelet.dynamicResources(pod, container)
}
