// Package fakeruntime is a container runtime without containers: a container is a record that says it runs. It lets an unmodified
// kubelet run pods, and shows with what it would have started them.
package fakeruntime

import (
	"fmt"
	"net"
	"os"

	"google.golang.org/grpc"
	cri "k8s.io/cri-api/pkg/apis/runtime/v1"
)

// Run serves CRI on the socket named by the only argument, until stdin ends. Its state ends with it, as that of a node does that boots.
func Run(args []string) error {
	if len(args) != 1 {
		return fmt.Errorf("usage: fake-runtime SOCKET")
	}
	if err := os.RemoveAll(args[0]); err != nil { // the socket of an earlier life
		return err
	}
	listener, err := net.Listen("unix", args[0])
	if err != nil {
		return err
	}
	runtime := newRuntime()
	server := grpc.NewServer()
	cri.RegisterRuntimeServiceServer(server, runtime)
	cri.RegisterImageServiceServer(server, images{})
	go answer(runtime, os.Stdin, os.Stdout, server.Stop)
	return server.Serve(listener)
}
