package main

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"sort"

	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apiserver/pkg/util/feature"
	clientset "k8s.io/client-go/kubernetes"
	"k8s.io/client-go/rest"
	"k8s.io/klog/v2"
	api "k8s.io/kubelet/pkg/apis/podresources/v1"
	"k8s.io/kubernetes/pkg/kubelet/cm/dra"
	"k8s.io/kubernetes/pkg/kubelet/config"
)

// claimHealth is what the status of a pod says of one device of a claim.
type claimHealth struct {
	ID      string `json:"id"`
	Health  string `json:"health"`
	Message string `json:"message"`
}

// startClaims makes the DRA manager, whose API server is a test's: it asks it for claims, and deletes slices there.
func (k *kubelet) startClaims(options startOptions, sources config.SourcesReady) error {
	if options.APIServer == "" {
		return nil
	}
	// A kubelet makes it, and drivers their own directories in it.
	if err := os.MkdirAll(filepath.Join(k.directory, "plugins"), 0o750); err != nil {
		return err
	}
	client, err := clientset.NewForConfig(&rest.Config{
		Host:            options.APIServer,
		TLSClientConfig: rest.TLSClientConfig{Insecure: true},
		ContentConfig:   rest.ContentConfig{ContentType: "application/json", AcceptContentTypes: "application/json"},
		BearerToken:     "the-kubelet",
		QPS:             -1,
	})
	if err != nil {
		return err
	}
	if k.claims, err = dra.NewManager(klog.Background(), client, k.directory); err != nil {
		return err
	}
	if err := k.claims.Start(context.Background(), k.activePods, nodeOf(options.Node), sources); err != nil {
		return err
	}
	go k.tellUpdates(k.claims.Updates())
	return nil
}

// openGates sets feature gates as --feature-gates does.
func openGates(gates map[string]bool) error {
	return feature.DefaultMutableFeatureGate.SetFromMap(gates)
}

// prepare is what a kubelet does before it makes the sandbox of a pod. The answer is what each container gets, in CDI's names.
func (k *kubelet) prepare(spec podSpec) (map[string][]string, error) {
	pod, err := spec.pod()
	if err != nil {
		return nil, err
	}
	if k.claims == nil {
		return nil, errors.New("start was without api_server: this kubelet knows no claims")
	}
	k.addPod(pod)
	if err := k.claims.PrepareResources(context.Background(), pod); err != nil {
		return nil, err
	}
	told := map[string][]string{}
	for _, container := range allContainers(pod) {
		info, err := k.claims.GetResources(pod, container)
		if err != nil {
			return nil, err
		}
		told[container.Name] = []string{}
		for _, device := range info.CDIDevices {
			told[container.Name] = append(told[container.Name], device.Name)
		}
	}
	return told, nil
}

// unprepare is what a kubelet does when the containers of a pod have ended; the pod is over when it has gone well.
func (k *kubelet) unprepare(uid string) error {
	pod := k.pod(uid)
	if pod == nil {
		return fmt.Errorf("no pod %q", uid)
	}
	if err := k.claims.UnprepareResources(context.Background(), pod); err != nil {
		return err
	}
	k.removePod(types.UID(uid))
	return nil
}

// claimHealth is allocatedResourcesStatus of the pod's status, of claims alone: container, claim, devices.
func (k *kubelet) claimHealth(uid string) (map[string]map[string][]claimHealth, error) {
	pod := k.pod(uid)
	if pod == nil {
		return nil, fmt.Errorf("no pod %q", uid)
	}
	status := v1.PodStatus{}
	for _, container := range pod.Spec.Containers {
		status.ContainerStatuses = append(status.ContainerStatuses, v1.ContainerStatus{Name: container.Name})
	}
	k.addClaimHealth(pod, &status)
	health := map[string]map[string][]claimHealth{}
	for _, container := range status.ContainerStatuses {
		health[container.Name] = map[string][]claimHealth{}
		for _, resource := range container.AllocatedResourcesStatus {
			devices := []claimHealth{}
			for _, device := range resource.Resources {
				devices = append(devices, claimHealth{string(device.ResourceID), string(device.Health), messageOf(device)})
			}
			sort.Slice(devices, func(a, b int) bool { return devices[a].ID < devices[b].ID })
			health[container.Name][string(resource.Name)] = devices
		}
	}
	return health, nil
}

// dynamicResources are the container manager's words for PodResources: each device has the CDI names of those before it, too.
func (k *kubelet) dynamicResources(pod *v1.Pod, container *v1.Container) []*api.DynamicResource {
	told := []*api.DynamicResource{}
	if k.claims == nil {
		return told
	}
	infos, err := k.claims.GetContainerClaimInfos(pod, container)
	if err != nil {
		klog.ErrorS(err, "harness: no claims of a container", "pod", klog.KObj(pod))
		return told
	}
	for _, info := range infos {
		one := &api.DynamicResource{ClaimName: info.ClaimName, ClaimNamespace: info.Namespace}
		for driver, state := range info.DriverState {
			var names []*api.CDIDevice
			for _, device := range state.Devices {
				for _, name := range device.CDIDeviceIDs {
					names = append(names, &api.CDIDevice{Name: name})
				}
				one.ClaimResources = append(one.ClaimResources, &api.ClaimResource{
					CdiDevices: names, DriverName: driver, PoolName: device.PoolName, DeviceName: device.DeviceName,
				})
			}
		}
		told = append(told, one)
	}
	return told
}
