//go:build !kubernetes_1_34 && !kubernetes_1_35

package main

import (
	"context"

	v1 "k8s.io/api/core/v1"
	meta "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/kubernetes/pkg/kubelet/cm/dra"
)

// What Kubernetes 1.36 gave a context, and the message beside health; until_1_35.go has the same without.

func nodeOf(name string) dra.GetNodeFunc {
	return func(context.Context) (*v1.Node, error) { return &v1.Node{ObjectMeta: meta.ObjectMeta{Name: name}}, nil }
}

func messageOf(device v1.ResourceHealth) string {
	if device.Message == nil {
		return ""
	}
	return *device.Message
}
