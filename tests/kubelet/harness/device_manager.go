package main

import (
	cadvisor "github.com/google/cadvisor/info/v1"
	"k8s.io/klog/v2"
	"k8s.io/kubernetes/pkg/kubelet/cm/devicemanager"
	"k8s.io/kubernetes/pkg/kubelet/cm/topologymanager"

	_ "unsafe" // for go:linkname
)

// The exported constructor takes /var/lib/kubelet/device-plugins for granted. This is the one that it calls, with the
// path of kubelet.sock as a parameter.
//
//go:linkname newDeviceManager k8s.io/kubernetes/pkg/kubelet/cm/devicemanager.newManagerImpl
func newDeviceManager(
	logger klog.Logger, socketPath string, topology []cadvisor.Node, store topologymanager.Store,
) (*devicemanager.ManagerImpl, error)
