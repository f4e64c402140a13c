package fakeruntime

import (
	"context"
	"path/filepath"
	"time"

	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
	"google.golang.org/protobuf/proto"
	cri "k8s.io/cri-api/pkg/apis/runtime/v1"
)

type container struct {
	request   *cri.CreateContainerRequest
	sandboxID string
	status    *cri.ContainerStatus
	removed   bool
	// lingers is how long its process takes to end when it is told to.
	lingers time.Duration
}

// exit ends a container that has not ended yet.
func (c *container) exit(code int32) {
	if c.status.State == cri.ContainerState_CONTAINER_EXITED {
		return
	}
	c.status.State = cri.ContainerState_CONTAINER_EXITED
	c.status.FinishedAt = time.Now().UnixNano()
	c.status.ExitCode = code
	c.status.Reason = "Error"
	if code == 0 {
		c.status.Reason = "Completed"
	}
}

// Copies leave the lock; the records change under it.
func (c *container) copy() *cri.ContainerStatus { return proto.Clone(c.status).(*cri.ContainerStatus) }
func (s *sandbox) copy() *cri.PodSandboxStatus  { return proto.Clone(s.status).(*cri.PodSandboxStatus) }

func (r *runtime) container(id string) (*container, error) {
	for _, each := range r.containers {
		if each.status.Id == id && !each.removed {
			return each, nil
		}
	}
	return nil, status.Errorf(codes.NotFound, "no container %s", id)
}

func (r *runtime) CreateContainer(_ context.Context, request *cri.CreateContainerRequest) (*cri.CreateContainerResponse, error) {
	r.mutex.Lock()
	defer r.mutex.Unlock()
	if r.sandbox(request.GetPodSandboxId()) == nil {
		return nil, status.Errorf(codes.NotFound, "no sandbox %s", request.GetPodSandboxId())
	}
	config := request.GetConfig()
	made := &cri.ContainerStatus{
		Id:          r.nextID(),
		Metadata:    config.GetMetadata(),
		State:       cri.ContainerState_CONTAINER_CREATED,
		CreatedAt:   time.Now().UnixNano(),
		Image:       config.GetImage(),
		ImageRef:    config.GetImage().GetImage(),
		ImageId:     config.GetImage().GetImage(),
		Labels:      config.GetLabels(),
		Annotations: config.GetAnnotations(),
		Mounts:      config.GetMounts(),
		LogPath:     filepath.Join(request.GetSandboxConfig().GetLogDirectory(), config.GetLogPath()),
	}
	r.containers = append(r.containers, &container{request: request, sandboxID: request.GetPodSandboxId(), status: made})
	return &cri.CreateContainerResponse{ContainerId: made.Id}, nil
}

func (r *runtime) StartContainer(_ context.Context, request *cri.StartContainerRequest) (*cri.StartContainerResponse, error) {
	r.mutex.Lock()
	defer r.mutex.Unlock()
	found, err := r.container(request.GetContainerId())
	if err != nil {
		return nil, err
	}
	found.status.State = cri.ContainerState_CONTAINER_RUNNING
	found.status.StartedAt = time.Now().UnixNano()
	return &cri.StartContainerResponse{}, nil
}

func (r *runtime) StopContainer(_ context.Context, request *cri.StopContainerRequest) (*cri.StopContainerResponse, error) {
	r.mutex.Lock()
	defer r.mutex.Unlock()
	if found, err := r.container(request.GetContainerId()); err == nil {
		r.mutex.Unlock()
		time.Sleep(found.lingers)
		r.mutex.Lock()
		found.exit(137)
	}
	return &cri.StopContainerResponse{}, nil
}

func (r *runtime) RemoveContainer(_ context.Context, request *cri.RemoveContainerRequest) (*cri.RemoveContainerResponse, error) {
	r.mutex.Lock()
	defer r.mutex.Unlock()
	if found, err := r.container(request.GetContainerId()); err == nil {
		found.exit(137)
		found.removed = true
	}
	return &cri.RemoveContainerResponse{}, nil
}

func (r *runtime) ContainerStatus(_ context.Context, request *cri.ContainerStatusRequest) (*cri.ContainerStatusResponse, error) {
	r.mutex.Lock()
	defer r.mutex.Unlock()
	found, err := r.container(request.GetContainerId())
	if err != nil {
		return nil, err
	}
	return &cri.ContainerStatusResponse{Status: found.copy()}, nil
}

func (r *runtime) ListContainers(_ context.Context, request *cri.ListContainersRequest) (*cri.ListContainersResponse, error) {
	r.mutex.Lock()
	defer r.mutex.Unlock()
	filter := request.GetFilter()
	response := &cri.ListContainersResponse{}
	for _, each := range r.containers {
		wanted := !each.removed && (filter.GetId() == "" || filter.GetId() == each.status.Id) &&
			(filter.GetState() == nil || filter.GetState().GetState() == each.status.State) &&
			(filter.GetPodSandboxId() == "" || filter.GetPodSandboxId() == each.sandboxID) &&
			matches(each.status.Labels, filter.GetLabelSelector())
		if wanted {
			is := each.copy()
			response.Containers = append(response.Containers, &cri.Container{
				Id: is.Id, PodSandboxId: each.sandboxID, Metadata: is.Metadata, Image: is.Image, ImageRef: is.ImageRef, ImageId: is.ImageId,
				State: is.State, CreatedAt: is.CreatedAt, Labels: is.Labels, Annotations: is.Annotations,
			})
		}
	}
	return response, nil
}

func (r *runtime) ListContainerStats(context.Context, *cri.ListContainerStatsRequest) (*cri.ListContainerStatsResponse, error) {
	return &cri.ListContainerStatsResponse{}, nil
}
