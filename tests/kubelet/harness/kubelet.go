package main

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"reflect"
	"sync"
	"sync/atomic"
	"time"
	"unsafe"

	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/sets"
	"k8s.io/client-go/tools/record"
	"k8s.io/kubernetes/pkg/kubelet/cm/containermap"
	"k8s.io/kubernetes/pkg/kubelet/cm/devicemanager"
	"k8s.io/kubernetes/pkg/kubelet/cm/dra"
	"k8s.io/kubernetes/pkg/kubelet/cm/resourceupdates"
	"k8s.io/kubernetes/pkg/kubelet/cm/topologymanager"
	"k8s.io/kubernetes/pkg/kubelet/config"
	"k8s.io/kubernetes/pkg/kubelet/metrics"
	"k8s.io/kubernetes/pkg/kubelet/pluginmanager"
)

// kubelet is the part of a kubelet that has to do with device plugins and DRA drivers.
type kubelet struct {
	event func(name string, content any)

	starting sync.Mutex
	started  atomic.Bool
	// syncLoop is held by what the kubelet does in its one sync loop: admissions and container starts.
	syncLoop sync.Mutex

	sourcesReady atomic.Bool
	directory    string
	devices      *devicemanager.ManagerImpl
	topology     topologymanager.Manager
	// claims is nil where the kubelet was started without an API server.
	claims *dra.Manager

	podsMutex sync.Mutex
	pods      map[types.UID]*v1.Pod
}

// startOptions are the node and the moment at which the kubelet starts on it.
type startOptions struct {
	// Directory is what --root-dir is to a kubelet: device-plugins, plugins_registry and pod-resources are in it.
	Directory     string            `json:"directory"`
	Policy        string            `json:"policy"`
	Scope         string            `json:"scope"`
	PolicyOptions map[string]string `json:"policy_options"`
	NumaNodes     []int             `json:"numa_nodes"`
	// PluginsRegistry is whether plugins_registry is watched too.
	PluginsRegistry bool `json:"plugins_registry"`
	// APIServer is where claims are and slices are deleted, such as https://127.0.0.1:6443; empty for a kubelet without DRA.
	APIServer string `json:"api_server"`
	// Node is its name, by which it finds slices.
	Node string `json:"node"`
	// FeatureGates are those that are not as in the release.
	FeatureGates map[string]bool `json:"feature_gates"`
	// SourcesReady is false while the kubelet has not yet heard of all its pods.
	SourcesReady bool `json:"sources_ready"`
	// Containers are those the runtime knows of, whether they run or have ended.
	Containers []runtimeContainer `json:"containers"`
}

type runtimeContainer struct {
	PodUID  string `json:"pod_uid"`
	Name    string `json:"name"`
	ID      string `json:"id"`
	Running bool   `json:"running"`
}

func newKubelet(event func(string, any)) *kubelet {
	return &kubelet{event: event, pods: map[types.UID]*v1.Pod{}}
}

func (k *kubelet) start(options startOptions) error {
	k.starting.Lock()
	defer k.starting.Unlock()
	if k.started.Load() {
		return errors.New("it has been started: one process is one life of a kubelet")
	}
	if !filepath.IsAbs(options.Directory) {
		return fmt.Errorf("directory %q is not absolute", options.Directory)
	}
	k.directory = options.Directory
	k.sourcesReady.Store(options.SourcesReady)
	if err := openGates(options.FeatureGates); err != nil {
		return err
	}
	metrics.Register()
	if err := k.build(options); err != nil {
		return err
	}
	sources := config.NewSourcesReady(func(sets.Set[string]) bool { return k.sourcesReady.Load() })
	known, running := containers(options.Containers)
	if err := k.startDevices(sources, known, running); err != nil {
		return err
	}
	if err := k.startClaims(options, sources); err != nil {
		return err
	}
	if options.PluginsRegistry {
		if err := k.watchRegistry(sources); err != nil {
			return err
		}
	}
	if err := k.servePodResources(); err != nil {
		return err
	}
	go k.tellUpdates(k.devices.Updates())
	k.started.Store(true)
	return nil
}

// build makes the managers as the kubelet's container manager does: the topology manager first, which is the device
// manager's store of affinities and asks it for hints.
func (k *kubelet) build(options startOptions) error {
	nodes := make([]numaNode, len(options.NumaNodes))
	for index, id := range options.NumaNodes {
		nodes[index].Id = id
	}
	var err error
	k.topology, err = newTopologyManager(nodes, options)
	if err != nil {
		return err
	}
	socket := filepath.Join(k.directory, "device-plugins", "kubelet.sock")
	k.devices, err = newDeviceManager(socket, nodes, k.topology)
	if err != nil {
		return err
	}
	k.giveHints()
	return nil
}

func (k *kubelet) watchRegistry(sources config.SourcesReady) error {
	directory := filepath.Join(k.directory, "plugins_registry")
	if err := os.MkdirAll(directory, 0o750); err != nil {
		return err
	}
	plugins := pluginmanager.NewPluginManager(directory, record.NewFakeRecorder(1000))
	plugins.AddHandler("DevicePlugin", k.devices.GetWatcherHandler())
	if k.claims != nil {
		plugins.AddHandler("DRAPlugin", k.claims.GetWatcherHandler())
	}
	go runPlugins(plugins, sources)
	return nil
}

// tellUpdates passes on the pods whose status has to be computed anew, because a device of theirs changed.
func (k *kubelet) tellUpdates(updates <-chan resourceupdates.Update) {
	for update := range updates {
		k.event("update", update.PodUIDs)
	}
}

func (k *kubelet) checkpointPath() string {
	return filepath.Join(k.directory, "device-plugins", "kubelet_internal_checkpoint")
}

func containers(list []runtimeContainer) (containermap.ContainerMap, sets.Set[string]) {
	known, running := containermap.NewContainerMap(), sets.New[string]()
	for _, container := range list {
		known.Add(container.PodUID, container.Name, container.ID)
		if container.Running {
			running.Insert(container.ID)
		}
	}
	return known, running
}

// gracePasses makes the plugin of a resource one that ended before the grace period, which is five minutes and a constant.
// What it changes is private to the device manager, whose own tests do the same.
func (k *kubelet) gracePasses(resource string) error {
	endpoints := reflect.ValueOf(k.devices).Elem().FieldByName("endpoints")
	info := endpoints.MapIndex(reflect.ValueOf(resource))
	if !info.IsValid() {
		return fmt.Errorf("no plugin of %q has registered", resource)
	}
	field := info.FieldByName("e").Elem().Elem().FieldByName("stopTime")
	stopTime := (*time.Time)(unsafe.Pointer(field.UnsafeAddr()))
	if stopTime.IsZero() {
		return fmt.Errorf("the plugin of %q has not ended", resource)
	}
	*stopTime = stopTime.Add(-time.Hour)
	return nil
}
