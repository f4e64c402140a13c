package fakeruntime

import (
	"context"
	"fmt"
	"sync"

	cri "k8s.io/cri-api/pkg/apis/runtime/v1"
)

// runtime holds every sandbox and container that was ever made; those removed are kept for whoever asks what there was.
type runtime struct {
	cri.UnimplementedRuntimeServiceServer // what a kubelet asks only for exec, logs, checkpoints and events
	mutex                                 sync.Mutex
	sandboxes                             []*sandbox
	containers                            []*container
}

func newRuntime() *runtime { return &runtime{} }

// nextID is unique among sandboxes and containers, and sorts as they were made.
func (r *runtime) nextID() string {
	return fmt.Sprintf("fake-%04d", len(r.sandboxes)+len(r.containers)+1)
}

func (r *runtime) Version(context.Context, *cri.VersionRequest) (*cri.VersionResponse, error) {
	return &cri.VersionResponse{Version: "0.1.0", RuntimeName: "fake", RuntimeVersion: "1.0.0", RuntimeApiVersion: "v1"}, nil
}

func (r *runtime) Status(context.Context, *cri.StatusRequest) (*cri.StatusResponse, error) {
	ready := []*cri.RuntimeCondition{{Type: "RuntimeReady", Status: true}, {Type: "NetworkReady", Status: true}}
	return &cri.StatusResponse{Status: &cri.RuntimeStatus{Conditions: ready}}, nil
}

func (r *runtime) RuntimeConfig(context.Context, *cri.RuntimeConfigRequest) (*cri.RuntimeConfigResponse, error) {
	return &cri.RuntimeConfigResponse{Linux: &cri.LinuxRuntimeConfiguration{CgroupDriver: cri.CgroupDriver_CGROUPFS}}, nil
}

func (r *runtime) UpdateRuntimeConfig(context.Context, *cri.UpdateRuntimeConfigRequest) (*cri.UpdateRuntimeConfigResponse, error) {
	return &cri.UpdateRuntimeConfigResponse{}, nil
}

// matches is whether labels hold all that a selector names.
func matches(labels, selector map[string]string) bool {
	for key, value := range selector {
		if labels[key] != value {
			return false
		}
	}
	return true
}
