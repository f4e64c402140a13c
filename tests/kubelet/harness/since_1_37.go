//go:build !kubernetes_1_34 && !kubernetes_1_35 && !kubernetes_1_36

package main

import (
	"context"

	cadvisor "github.com/google/cadvisor/lib/model"
	v1 "k8s.io/api/core/v1"
	"k8s.io/klog/v2"
	api "k8s.io/kubelet/pkg/apis/podresources/v1"
	"k8s.io/kubernetes/pkg/kubelet/cm/devicemanager"
	"k8s.io/kubernetes/pkg/kubelet/cm/topologymanager"
	"k8s.io/kubernetes/pkg/kubelet/lifecycle"
)

// What Kubernetes 1.37 gave a logger, a context or the operation; until_1_36.go has the same without.

type numaNode = cadvisor.Node

func newTopologyManager(nodes []numaNode, options startOptions) (topologymanager.Manager, error) {
	return topologymanager.NewManager(klog.Background(), nodes, options.Policy, options.Scope, options.PolicyOptions)
}

// admitPod names the operation: for one without, the device manager allocates nothing and lets the pod in.
func (k *kubelet) admitPod(pod *v1.Pod) lifecycle.PodAdmitResult {
	attributes := &lifecycle.PodAdmitAttributes{Pod: pod, Operation: lifecycle.AddOperation}
	return k.topology.Admit(context.Background(), attributes)
}

func (k *kubelet) addContainer(pod *v1.Pod, container *v1.Container) {
	k.topology.AddContainer(klog.Background(), pod, container, containerID(pod, container))
}

func (k *kubelet) removeContainer(pod *v1.Pod, container *v1.Container) error {
	return k.topology.RemoveContainer(klog.Background(), containerID(pod, container))
}

func (k *kubelet) freeDevices() { k.devices.UpdateAllocatedDevices(klog.Background()) }

func (k *kubelet) deviceCapacity() (capacity, allocatable v1.ResourceList, deleted []string) {
	return k.devices.GetCapacity(klog.Background())
}

func (k *kubelet) healthyDevices() devicemanager.ResourceDeviceInstances {
	return k.devices.GetAllocatableDevices(klog.Background())
}

func (k *kubelet) addHealth(pod *v1.Pod, status *v1.PodStatus) {
	k.devices.UpdateAllocatedResourcesStatus(klog.Background(), pod, status)
}

func (k *kubelet) addClaimHealth(pod *v1.Pod, status *v1.PodStatus) {
	k.claims.UpdateAllocatedResourcesStatus(klog.Background(), pod, status)
}

func (k *kubelet) hintsOf(pod *v1.Pod, container *v1.Container) map[string][]topologymanager.TopologyHint {
	return k.devices.GetTopologyHints(klog.Background(), pod, container, lifecycle.AddOperation)
}

func (d podResourcesDevices) UpdateAllocatedDevices(logger klog.Logger) {
	d.manager.UpdateAllocatedDevices(logger)
}

func (d podResourcesDevices) GetAllocatableDevices(logger klog.Logger) []*api.ContainerDevices {
	return containerDevices(d.manager.GetAllocatableDevices(logger))
}

func (noOtherResources) GetCPUs(*v1.Pod, *v1.Container) []int64 { return []int64{} }
func (noOtherResources) GetPodCPUs(string) []int64              { return []int64{} }
func (noOtherResources) GetMemory(klog.Logger, *v1.Pod, *v1.Container) []*api.ContainerMemory {
	return []*api.ContainerMemory{}
}
func (noOtherResources) GetPodMemory(klog.Logger, string) []*api.ContainerMemory {
	return []*api.ContainerMemory{}
}
func (noOtherResources) GetAllocatableMemory(klog.Logger) []*api.ContainerMemory {
	return []*api.ContainerMemory{}
}
func (c podResourcesClaims) GetDynamicResources(
	_ klog.Logger, pod *v1.Pod, container *v1.Container,
) []*api.DynamicResource {
	return c.kubelet.dynamicResources(pod, container)
}
