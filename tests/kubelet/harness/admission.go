package main

import (
	"fmt"

	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/klog/v2"
	"k8s.io/kubernetes/pkg/kubelet/cm/devicemanager"
)

// admission is what became of a pod. Reason and Message are those of the pod's status when it was rejected.
type admission struct {
	Admitted   bool                    `json:"admitted"`
	Reason     string                  `json:"reason"`
	Message    string                  `json:"message"`
	Containers map[string]runContainer `json:"containers"`
}

// runContainer is what the runtime would be told for one container, or why it cannot be started.
type runContainer struct {
	Error       string            `json:"error"`
	DeviceIDs   deviceIDs         `json:"device_ids"`
	Devices     []deviceNode      `json:"devices"`
	Mounts      []mount           `json:"mounts"`
	Envs        map[string]string `json:"envs"`
	Annotations map[string]string `json:"annotations"`
	CDI         []string          `json:"cdi"`
}

type deviceNode struct {
	HostPath      string `json:"host_path"`
	ContainerPath string `json:"container_path"`
	Permissions   string `json:"permissions"`
}

type mount struct {
	HostPath      string `json:"host_path"`
	ContainerPath string `json:"container_path"`
	ReadOnly      bool   `json:"read_only"`
}

// admit is the kubelet's way: the pod counts as active while it is admitted, and no more once it is rejected.
func (k *kubelet) admit(spec podSpec) (*admission, error) {
	pod, err := spec.pod()
	if err != nil {
		return nil, err
	}
	k.syncLoop.Lock()
	defer k.syncLoop.Unlock()
	k.addPod(pod)
	result := k.admitPod(pod)
	if !result.Admit {
		k.removePod(pod.UID)
		return &admission{Reason: result.Reason, Message: result.Message}, nil
	}
	for _, container := range allContainers(pod) {
		k.addContainer(pod, container)
	}
	return &admission{Admitted: true, Containers: k.startContainers(pod)}, nil
}

// run starts, or starts again, the containers of a pod that is there: no admission, but PreStartContainer.
func (k *kubelet) run(spec podSpec) (map[string]runContainer, error) {
	pod, err := spec.pod()
	if err != nil {
		return nil, err
	}
	k.syncLoop.Lock()
	defer k.syncLoop.Unlock()
	return k.startContainers(pod), nil
}

// activate makes a pod one that the kubelet has heard of, without admitting it.
func (k *kubelet) activate(spec podSpec) error {
	pod, err := spec.pod()
	if err != nil {
		return err
	}
	k.addPod(pod)
	return nil
}

func (k *kubelet) free(uid string) error {
	pod := k.pod(uid)
	if pod == nil {
		return fmt.Errorf("no pod %q", uid)
	}
	for _, container := range allContainers(pod) {
		if err := k.removeContainer(pod, container); err != nil {
			return err
		}
	}
	k.removePod(pod.UID)
	k.freeDevices()
	return nil
}

func (k *kubelet) startContainers(pod *v1.Pod) map[string]runContainer {
	started := map[string]runContainer{}
	for _, container := range allContainers(pod) {
		options, err := k.runOptions(pod, container)
		if err != nil {
			started[container.Name] = runContainer{Error: err.Error()}
			continue
		}
		one := toldToRuntime(options)
		one.DeviceIDs = k.idsOf(pod.UID, container.Name)
		started[container.Name] = one
	}
	return started
}

func toldToRuntime(options *devicemanager.DeviceRunContainerOptions) runContainer {
	told := runContainer{Devices: []deviceNode{}, Mounts: []mount{}, CDI: []string{}}
	told.Envs, told.Annotations = map[string]string{}, map[string]string{}
	if options == nil { // no resource of this container is a device plugin's
		return told
	}
	for _, each := range options.Devices {
		told.Devices = append(told.Devices, deviceNode{each.PathOnHost, each.PathInContainer, each.Permissions})
	}
	for _, each := range options.Mounts {
		told.Mounts = append(told.Mounts, mount{each.HostPath, each.ContainerPath, each.ReadOnly})
	}
	for _, each := range options.Envs {
		told.Envs[each.Name] = each.Value
	}
	for _, each := range options.Annotations {
		told.Annotations[each.Name] = each.Value
	}
	for _, each := range options.CDIDevices {
		told.CDI = append(told.CDI, each.Name)
	}
	return told
}

func containerID(pod *v1.Pod, container *v1.Container) string {
	return string(pod.UID) + "/" + container.Name
}

func (k *kubelet) activePods() []*v1.Pod {
	k.podsMutex.Lock()
	defer k.podsMutex.Unlock()
	active := make([]*v1.Pod, 0, len(k.pods))
	for _, pod := range k.pods {
		active = append(active, pod)
	}
	return active
}

func (k *kubelet) pod(uid string) *v1.Pod {
	k.podsMutex.Lock()
	defer k.podsMutex.Unlock()
	return k.pods[types.UID(uid)]
}

func (k *kubelet) addPod(pod *v1.Pod) {
	k.podsMutex.Lock()
	defer k.podsMutex.Unlock()
	k.pods[pod.UID] = pod
	klog.InfoS("harness: pod is active", "pod", klog.KObj(pod))
}

func (k *kubelet) removePod(uid types.UID) {
	k.podsMutex.Lock()
	defer k.podsMutex.Unlock()
	delete(k.pods, uid)
}
