package main

import (
	"errors"
	"fmt"
	"strings"

	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	meta "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
)

// podSpec is a pod as far as devices go.
type podSpec struct {
	UID            string          `json:"uid"`
	Name           string          `json:"name"`
	Namespace      string          `json:"namespace"`
	InitContainers []containerSpec `json:"init_containers"`
	Containers     []containerSpec `json:"containers"`
	// Claims are the names of claims, by what containers call them.
	Claims map[string]string `json:"claims"`
}

type containerSpec struct {
	Name   string           `json:"name"`
	Limits map[string]int64 `json:"limits"`
	// Sidecar makes an init container a restartable one, which keeps its devices.
	Sidecar bool `json:"sidecar"`
	// Claims are what it has of the pod's, each "claim" or "claim/request".
	Claims []string `json:"claims"`
}

func (p podSpec) pod() (*v1.Pod, error) {
	if p.UID == "" {
		return nil, errors.New("a pod needs a uid")
	}
	if len(p.Containers) == 0 {
		return nil, fmt.Errorf("pod %s has no container", p.UID)
	}
	pod := &v1.Pod{ObjectMeta: meta.ObjectMeta{UID: types.UID(p.UID), Name: p.Name, Namespace: p.Namespace}}
	for name, claim := range p.Claims {
		pod.Spec.ResourceClaims = append(pod.Spec.ResourceClaims, v1.PodResourceClaim{Name: name, ResourceClaimName: &claim})
	}
	for _, each := range p.InitContainers {
		pod.Spec.InitContainers = append(pod.Spec.InitContainers, each.container())
	}
	for _, each := range p.Containers {
		pod.Spec.Containers = append(pod.Spec.Containers, each.container())
	}
	return pod, nil
}

func (c containerSpec) container() v1.Container {
	limits := v1.ResourceList{}
	for name, count := range c.Limits {
		limits[v1.ResourceName(name)] = *resource.NewQuantity(count, resource.DecimalSI)
	}
	container := v1.Container{Name: c.Name, Resources: v1.ResourceRequirements{Limits: limits, Requests: limits}}
	for _, each := range c.Claims {
		name, request, _ := strings.Cut(each, "/")
		container.Resources.Claims = append(container.Resources.Claims, v1.ResourceClaim{Name: name, Request: request})
	}
	if c.Sidecar {
		always := v1.ContainerRestartPolicyAlways
		container.RestartPolicy = &always
	}
	return container
}

func allContainers(pod *v1.Pod) []*v1.Container {
	var all []*v1.Container
	for index := range pod.Spec.InitContainers {
		all = append(all, &pod.Spec.InitContainers[index])
	}
	for index := range pod.Spec.Containers {
		all = append(all, &pod.Spec.Containers[index])
	}
	return all
}
