package fakeruntime

import (
	"context"
	"time"

	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
	cri "k8s.io/cri-api/pkg/apis/runtime/v1"
)

type sandbox struct {
	status  *cri.PodSandboxStatus
	removed bool
}

func (r *runtime) sandbox(id string) *sandbox {
	for _, each := range r.sandboxes {
		if each.status.Id == id && !each.removed {
			return each
		}
	}
	return nil
}

func (r *runtime) RunPodSandbox(_ context.Context, request *cri.RunPodSandboxRequest) (*cri.RunPodSandboxResponse, error) {
	r.mutex.Lock()
	defer r.mutex.Unlock()
	made := &cri.PodSandboxStatus{
		Id:          r.nextID(),
		Metadata:    request.GetConfig().GetMetadata(),
		State:       cri.PodSandboxState_SANDBOX_READY,
		CreatedAt:   time.Now().UnixNano(),
		Network:     &cri.PodSandboxNetworkStatus{},
		Linux:       &cri.LinuxPodSandboxStatus{Namespaces: &cri.Namespace{Options: request.GetConfig().GetLinux().GetSecurityContext().GetNamespaceOptions()}},
		Labels:      request.GetConfig().GetLabels(),
		Annotations: request.GetConfig().GetAnnotations(),
	}
	r.sandboxes = append(r.sandboxes, &sandbox{status: made})
	return &cri.RunPodSandboxResponse{PodSandboxId: made.Id}, nil
}

func (r *runtime) StopPodSandbox(_ context.Context, request *cri.StopPodSandboxRequest) (*cri.StopPodSandboxResponse, error) {
	r.mutex.Lock()
	defer r.mutex.Unlock()
	if found := r.sandbox(request.GetPodSandboxId()); found != nil {
		found.status.State = cri.PodSandboxState_SANDBOX_NOTREADY
	}
	for _, each := range r.containers {
		if each.sandboxID == request.GetPodSandboxId() {
			each.exit(137)
		}
	}
	return &cri.StopPodSandboxResponse{}, nil
}

func (r *runtime) RemovePodSandbox(_ context.Context, request *cri.RemovePodSandboxRequest) (*cri.RemovePodSandboxResponse, error) {
	r.mutex.Lock()
	defer r.mutex.Unlock()
	if found := r.sandbox(request.GetPodSandboxId()); found != nil {
		found.removed = true
	}
	for _, each := range r.containers {
		if each.sandboxID == request.GetPodSandboxId() {
			each.exit(137)
			each.removed = true
		}
	}
	return &cri.RemovePodSandboxResponse{}, nil
}

func (r *runtime) PodSandboxStatus(_ context.Context, request *cri.PodSandboxStatusRequest) (*cri.PodSandboxStatusResponse, error) {
	r.mutex.Lock()
	defer r.mutex.Unlock()
	found := r.sandbox(request.GetPodSandboxId())
	if found == nil {
		return nil, status.Errorf(codes.NotFound, "no sandbox %s", request.GetPodSandboxId())
	}
	return &cri.PodSandboxStatusResponse{Status: found.copy()}, nil
}

func (r *runtime) ListPodSandbox(_ context.Context, request *cri.ListPodSandboxRequest) (*cri.ListPodSandboxResponse, error) {
	r.mutex.Lock()
	defer r.mutex.Unlock()
	filter := request.GetFilter()
	response := &cri.ListPodSandboxResponse{}
	for _, each := range r.sandboxes {
		wanted := !each.removed && (filter.GetId() == "" || filter.GetId() == each.status.Id) &&
			(filter.GetState() == nil || filter.GetState().GetState() == each.status.State) &&
			matches(each.status.Labels, filter.GetLabelSelector())
		if wanted {
			is := each.copy()
			response.Items = append(response.Items, &cri.PodSandbox{
				Id: is.Id, Metadata: is.Metadata, State: is.State, CreatedAt: is.CreatedAt, Labels: is.Labels, Annotations: is.Annotations,
			})
		}
	}
	return response, nil
}

func (r *runtime) ListPodSandboxStats(context.Context, *cri.ListPodSandboxStatsRequest) (*cri.ListPodSandboxStatsResponse, error) {
	return &cri.ListPodSandboxStatsResponse{}, nil
}
