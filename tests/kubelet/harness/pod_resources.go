package main

import (
	"context"
	"net"
	"os"
	"path/filepath"

	"google.golang.org/grpc"
	v1 "k8s.io/api/core/v1"
	"k8s.io/klog/v2"
	api "k8s.io/kubelet/pkg/apis/podresources/v1"
	ratelimit "k8s.io/kubernetes/pkg/kubelet/apis/grpc"
	"k8s.io/kubernetes/pkg/kubelet/apis/podresources"
	_ "k8s.io/kubernetes/pkg/kubelet/cm" // for go:linkname
	"k8s.io/kubernetes/pkg/kubelet/cm/devicemanager"

	_ "unsafe" // for go:linkname
)

// servePodResources is the kubelet's ListenAndServePodResources, but for the version before v1 and for exiting when
// it cannot listen.
func (k *kubelet) servePodResources() error {
	socket := filepath.Join(k.directory, "pod-resources", podresources.Socket+".sock")
	if err := os.MkdirAll(filepath.Dir(socket), 0o750); err != nil {
		return err
	}
	if err := os.Remove(socket); err != nil && !os.IsNotExist(err) { // of the kubelet before this one
		return err
	}
	listener, err := net.Listen("unix", socket)
	if err != nil {
		return err
	}
	ctx := context.Background()
	server := grpc.NewServer(ratelimit.WithRateLimiter(ctx, "podresources", podresources.DefaultQPS, podresources.DefaultBurstTokens))
	nothing := noOtherResources{}
	api.RegisterPodResourcesListerServer(server, podresources.NewV1PodResourcesServer(ctx, podresources.PodResourcesProviders{
		Pods: k, Devices: podResourcesDevices{k.devices}, Cpus: nothing, Memory: nothing, DynamicResources: podResourcesClaims{k},
	}))
	go func() {
		if err := server.Serve(listener); err != nil {
			klog.ErrorS(err, "harness: PodResources is served no more")
		}
	}()
	return nil
}

// GetActivePods, GetPods and GetPodByName make the kubelet a podresources.PodsProvider: all pods it knows are active.
func (k *kubelet) GetActivePods() []*v1.Pod { return k.activePods() }

func (k *kubelet) GetPods() []*v1.Pod { return k.activePods() }

func (k *kubelet) GetPodByName(namespace, name string) (*v1.Pod, bool) {
	for _, pod := range k.activePods() {
		if pod.Namespace == namespace && pod.Name == name {
			return pod, true
		}
	}
	return nil, false
}

// podResourcesDevices is the container manager's way from the device manager to the API.
type podResourcesDevices struct{ manager *devicemanager.ManagerImpl }

func (d podResourcesDevices) GetDevices(podUID, containerName string) []*api.ContainerDevices {
	return containerDevices(d.manager.GetDevices(podUID, containerName))
}

//go:linkname containerDevices k8s.io/kubernetes/pkg/kubelet/cm.containerDevicesFromResourceDeviceInstances
func containerDevices(devices devicemanager.ResourceDeviceInstances) []*api.ContainerDevices

// podResourcesClaims is the container manager's way from the DRA manager to the API.
type podResourcesClaims struct{ kubelet *kubelet }

// noOtherResources are those of a kubelet without CPU manager and memory manager.
type noOtherResources struct{}

func (noOtherResources) GetAllocatableCPUs() []int64 { return []int64{} }
