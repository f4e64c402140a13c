// Command kubelet is the kubelet's side of the device plugin API, for benches: a program that shares no page with a plugin
// in Python, and talks as the kubelet does, through grpc-go.
//
//	kubelet KUBELET_DIR
//
// It prints one JSON object a line: {"kind": "list", "resource": NAME, "devices": COUNT} for each list that a plugin sends,
// {"kind": "allocated" or "preferred", "resource": NAME, "seconds": TIME} for each answer. On stdin, a line `allocate NAME` calls Allocate for the
// first device of the resource, `prefer NAME SIZE` GetPreferredAllocation of so many of all; 0 seconds: the plugin offers none. It ends with stdin.
package main

import (
	"bufio"
	"context"
	"encoding/json"
	"fmt"
	"net"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"sync"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/credentials/insecure"
	deviceplugin "k8s.io/kubelet/pkg/apis/deviceplugin/v1beta1"
	podresources "k8s.io/kubelet/pkg/apis/podresources/v1"
)

type event struct {
	Kind     string  `json:"kind"`
	Resource string  `json:"resource"`
	Devices  int     `json:"devices,omitempty"`
	Seconds  float64 `json:"seconds,omitempty"`
}

type resource struct {
	plugin  deviceplugin.DevicePluginClient
	prefers bool
	devices []string
}

type kubelet struct {
	deviceplugin.UnimplementedRegistrationServer
	podresources.UnimplementedPodResourcesListerServer

	directory string
	mutex     sync.Mutex
	resources map[string]*resource
	events    *json.Encoder
}

func main() {
	if len(os.Args) != 2 {
		fail(fmt.Errorf("usage: kubelet KUBELET_DIR"))
	}
	served := &kubelet{
		directory: filepath.Join(os.Args[1], "device-plugins"),
		resources: map[string]*resource{},
		events:    json.NewEncoder(os.Stdout),
	}
	serve(filepath.Join(os.Args[1], "pod-resources", "kubelet.sock"), func(server *grpc.Server) {
		podresources.RegisterPodResourcesListerServer(server, served)
	})
	serve(filepath.Join(served.directory, "kubelet.sock"), func(server *grpc.Server) {
		deviceplugin.RegisterRegistrationServer(server, served)
	})
	served.say(event{Kind: "ready"})
	lines := bufio.NewScanner(os.Stdin)
	for lines.Scan() {
		switch words := strings.Fields(lines.Text()); {
		case len(words) == 2 && words[0] == "allocate":
			served.allocate(words[1])
		case len(words) == 3 && words[0] == "prefer":
			served.prefer(words[1], words[2])
		default:
			fail(fmt.Errorf("not a command: %q", lines.Text()))
		}
	}
}

func serve(socket string, register func(*grpc.Server)) {
	if err := os.MkdirAll(filepath.Dir(socket), 0o755); err != nil {
		fail(err)
	}
	listener, err := net.Listen("unix", socket)
	if err != nil {
		fail(err)
	}
	server := grpc.NewServer()
	register(server)
	go func() { fail(server.Serve(listener)) }()
}

// Register takes a plugin, as the kubelet does: it answers, and then calls the plugin's endpoint.
func (k *kubelet) Register(_ context.Context, request *deviceplugin.RegisterRequest) (*deviceplugin.Empty, error) {
	go k.watch(request.ResourceName, filepath.Join(k.directory, request.Endpoint))
	return &deviceplugin.Empty{}, nil
}

func (k *kubelet) watch(name, socket string) {
	connection, err := grpc.NewClient("unix://"+socket, grpc.WithTransportCredentials(insecure.NewCredentials()))
	if err != nil {
		fail(err)
	}
	defer connection.Close()
	plugin := deviceplugin.NewDevicePluginClient(connection)
	options, err := plugin.GetDevicePluginOptions(context.Background(), &deviceplugin.Empty{})
	if err != nil {
		return // the plugin has ended
	}
	stream, err := plugin.ListAndWatch(context.Background(), &deviceplugin.Empty{})
	if err != nil {
		return
	}
	for {
		list, err := stream.Recv()
		if err != nil {
			return // the plugin has ended
		}
		devices := make([]string, 0, len(list.Devices))
		for _, device := range list.Devices {
			devices = append(devices, device.ID)
		}
		k.mutex.Lock()
		k.resources[name] = &resource{plugin: plugin, prefers: options.GetPreferredAllocationAvailable, devices: devices}
		k.mutex.Unlock()
		k.say(event{Kind: "list", Resource: name, Devices: len(devices)})
	}
}

func (k *kubelet) known(name string) *resource {
	k.mutex.Lock()
	defer k.mutex.Unlock()
	of := k.resources[name]
	if of == nil || len(of.devices) == 0 {
		fail(fmt.Errorf("no device of %q is known", name))
	}
	return of
}

func (k *kubelet) prefer(name, text string) {
	of := k.known(name)
	size, err := strconv.ParseInt(text, 10, 32)
	if err != nil {
		fail(err)
	}
	if !of.prefers {
		k.say(event{Kind: "preferred", Resource: name})
		return
	}
	request := &deviceplugin.PreferredAllocationRequest{ContainerRequests: []*deviceplugin.ContainerPreferredAllocationRequest{
		{AvailableDeviceIDs: of.devices, AllocationSize: int32(size)},
	}}
	began := time.Now()
	if _, err := of.plugin.GetPreferredAllocation(context.Background(), request); err != nil {
		fail(fmt.Errorf("GetPreferredAllocation of %s: %w", name, err))
	}
	k.say(event{Kind: "preferred", Resource: name, Seconds: time.Since(began).Seconds()})
}

func (k *kubelet) allocate(name string) {
	of := k.known(name)
	request := &deviceplugin.AllocateRequest{
		ContainerRequests: []*deviceplugin.ContainerAllocateRequest{{DevicesIds: of.devices[:1]}},
	}
	began := time.Now()
	if _, err := of.plugin.Allocate(context.Background(), request); err != nil {
		fail(fmt.Errorf("Allocate of %s: %w", name, err))
	}
	k.say(event{Kind: "allocated", Resource: name, Seconds: time.Since(began).Seconds()})
}

// List has no pods.
func (k *kubelet) List(context.Context, *podresources.ListPodResourcesRequest) (*podresources.ListPodResourcesResponse, error) {
	return &podresources.ListPodResourcesResponse{}, nil
}

// GetAllocatableResources has the devices of all lists.
func (k *kubelet) GetAllocatableResources(context.Context, *podresources.AllocatableResourcesRequest) (*podresources.AllocatableResourcesResponse, error) {
	k.mutex.Lock()
	defer k.mutex.Unlock()
	answer := &podresources.AllocatableResourcesResponse{}
	for name, of := range k.resources {
		answer.Devices = append(answer.Devices, &podresources.ContainerDevices{ResourceName: name, DeviceIds: of.devices})
	}
	return answer, nil
}

func (k *kubelet) say(what event) {
	k.mutex.Lock()
	defer k.mutex.Unlock()
	if err := k.events.Encode(what); err != nil {
		os.Exit(0) // the bench has ended
	}
}

func fail(err error) {
	fmt.Fprintln(os.Stderr, "kubelet of the bench:", err)
	os.Exit(1)
}
