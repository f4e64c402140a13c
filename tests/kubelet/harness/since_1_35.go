//go:build !kubernetes_1_34

package main

import (
	"context"

	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/util/sets"
	"k8s.io/klog/v2"
	"k8s.io/kubernetes/pkg/kubelet/cm/containermap"
	"k8s.io/kubernetes/pkg/kubelet/cm/devicemanager"
	"k8s.io/kubernetes/pkg/kubelet/cm/topologymanager"
	"k8s.io/kubernetes/pkg/kubelet/config"
	"k8s.io/kubernetes/pkg/kubelet/pluginmanager"

	_ "unsafe" // for go:linkname
)

// What Kubernetes 1.35 gave a logger or a context; until_1_34.go has the same without.

// The exported constructor takes /var/lib/kubelet/device-plugins for granted. This is the one that it calls, with the
// path of kubelet.sock as a parameter.
//
//go:linkname newManagerImpl k8s.io/kubernetes/pkg/kubelet/cm/devicemanager.newManagerImpl
func newManagerImpl(
	logger klog.Logger, socketPath string, topology []numaNode, store topologymanager.Store,
) (*devicemanager.ManagerImpl, error)

func newDeviceManager(
	socketPath string, topology []numaNode, store topologymanager.Store,
) (*devicemanager.ManagerImpl, error) {
	return newManagerImpl(klog.Background(), socketPath, topology, store)
}

func (k *kubelet) startDevices(
	sources config.SourcesReady, known containermap.ContainerMap, running sets.Set[string],
) error {
	return k.devices.Start(klog.Background(), k.activePods, sources, known, running)
}

func (k *kubelet) stop() error { return k.devices.Stop(klog.Background()) }

func (k *kubelet) giveHints() { k.topology.AddHintProvider(klog.Background(), k.devices) }

func (k *kubelet) runOptions(pod *v1.Pod, container *v1.Container) (*devicemanager.DeviceRunContainerOptions, error) {
	return k.devices.GetDeviceRunContainerOptions(context.Background(), pod, container)
}

func runPlugins(plugins pluginmanager.PluginManager, sources config.SourcesReady) {
	plugins.Run(context.Background(), sources, make(chan struct{}))
}
