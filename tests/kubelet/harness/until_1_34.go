//go:build kubernetes_1_34

package main

import (
	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/util/sets"
	"k8s.io/kubernetes/pkg/kubelet/cm/containermap"
	"k8s.io/kubernetes/pkg/kubelet/cm/devicemanager"
	"k8s.io/kubernetes/pkg/kubelet/cm/topologymanager"
	"k8s.io/kubernetes/pkg/kubelet/config"
	"k8s.io/kubernetes/pkg/kubelet/pluginmanager"

	_ "unsafe" // for go:linkname
)

// See since_1_35.go.
//
//go:linkname newDeviceManager k8s.io/kubernetes/pkg/kubelet/cm/devicemanager.newManagerImpl
func newDeviceManager(
	socketPath string, topology []numaNode, store topologymanager.Store,
) (*devicemanager.ManagerImpl, error)

func (k *kubelet) startDevices(
	sources config.SourcesReady, known containermap.ContainerMap, running sets.Set[string],
) error {
	return k.devices.Start(k.activePods, sources, known, running)
}

func (k *kubelet) stop() error { return k.devices.Stop() }

func (k *kubelet) giveHints() { k.topology.AddHintProvider(k.devices) }

func (k *kubelet) runOptions(pod *v1.Pod, container *v1.Container) (*devicemanager.DeviceRunContainerOptions, error) {
	return k.devices.GetDeviceRunContainerOptions(pod, container)
}

func runPlugins(plugins pluginmanager.PluginManager, sources config.SourcesReady) {
	plugins.Run(sources, make(chan struct{}))
}
