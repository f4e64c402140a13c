// Command plugin is the least that a device plugin in Go can be: a constant list, a constant answer, one Register.
//
//	plugin KUBELET_DIR RESOURCE
package main

import (
	"context"
	"fmt"
	"net"
	"os"
	"path/filepath"

	"google.golang.org/grpc"
	"google.golang.org/grpc/credentials/insecure"
	deviceplugin "k8s.io/kubelet/pkg/apis/deviceplugin/v1beta1"
)

const (
	device = "dfl-port.0"
	name   = "bare-go.sock"
)

type plugin struct {
	deviceplugin.UnimplementedDevicePluginServer
}

func main() {
	if len(os.Args) != 3 {
		fail(fmt.Errorf("usage: plugin KUBELET_DIR RESOURCE"))
	}
	directory := filepath.Join(os.Args[1], "device-plugins")
	if err := os.RemoveAll(filepath.Join(directory, name)); err != nil {
		fail(err)
	}
	listener, err := net.Listen("unix", filepath.Join(directory, name))
	if err != nil {
		fail(err)
	}
	server := grpc.NewServer()
	deviceplugin.RegisterDevicePluginServer(server, plugin{})
	go register(filepath.Join(directory, "kubelet.sock"), os.Args[2])
	fail(server.Serve(listener))
}

func register(socket, resource string) {
	connection, err := grpc.NewClient("unix://"+socket, grpc.WithTransportCredentials(insecure.NewCredentials()))
	if err != nil {
		fail(err)
	}
	defer connection.Close()
	request := &deviceplugin.RegisterRequest{Version: deviceplugin.Version, Endpoint: name, ResourceName: resource}
	if _, err := deviceplugin.NewRegistrationClient(connection).Register(context.Background(), request); err != nil {
		fail(err)
	}
}

func (plugin) GetDevicePluginOptions(context.Context, *deviceplugin.Empty) (*deviceplugin.DevicePluginOptions, error) {
	return &deviceplugin.DevicePluginOptions{}, nil
}

func (plugin) ListAndWatch(_ *deviceplugin.Empty, stream deviceplugin.DevicePlugin_ListAndWatchServer) error {
	devices := []*deviceplugin.Device{{ID: device, Health: deviceplugin.Healthy}}
	if err := stream.Send(&deviceplugin.ListAndWatchResponse{Devices: devices}); err != nil {
		return err
	}
	<-stream.Context().Done()
	return nil
}

func (plugin) Allocate(context.Context, *deviceplugin.AllocateRequest) (*deviceplugin.AllocateResponse, error) {
	node := &deviceplugin.DeviceSpec{HostPath: "/dev/" + device, ContainerPath: "/dev/" + device, Permissions: "rw"}
	return &deviceplugin.AllocateResponse{
		ContainerResponses: []*deviceplugin.ContainerAllocateResponse{{Devices: []*deviceplugin.DeviceSpec{node}}},
	}, nil
}

func fail(err error) {
	fmt.Fprintln(os.Stderr, "plugin of the bench:", err)
	os.Exit(1)
}
