//go:build kubernetes_1_34 || kubernetes_1_35

package main

import (
	v1 "k8s.io/api/core/v1"
	meta "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/kubernetes/pkg/kubelet/cm/dra"
)

// See since_1_36.go.

func nodeOf(name string) dra.GetNodeFunc {
	return func() (*v1.Node, error) { return &v1.Node{ObjectMeta: meta.ObjectMeta{Name: name}}, nil }
}

func messageOf(v1.ResourceHealth) string { return "" }
