package main

import (
	"encoding/json"
	"fmt"
)

// operations are what the kubelet can be asked, by name. Each reads its own fields from the request's line.
var operations = map[string]func(*kubelet, []byte) (any, error){
	"start":         startOperation,
	"stop":          needsStart(func(k *kubelet, _ struct{}) (any, error) { return nil, k.stop() }),
	"sources_ready": needsStart(func(k *kubelet, _ struct{}) (any, error) { k.sourcesReady.Store(true); return nil, nil }),
	"admit":         needsStart(func(k *kubelet, r podRequest) (any, error) { return k.admit(r.Pod) }),
	"run":           needsStart(func(k *kubelet, r podRequest) (any, error) { return k.run(r.Pod) }),
	"activate":      needsStart(func(k *kubelet, r podRequest) (any, error) { return nil, k.activate(r.Pod) }),
	"free":          needsStart(func(k *kubelet, r uidRequest) (any, error) { return nil, k.free(r.UID) }),
	"pod_devices":   needsStart(func(k *kubelet, r uidRequest) (any, error) { return k.podDevices(r.UID) }),
	"prepare":       needsStart(func(k *kubelet, r podRequest) (any, error) { return k.prepare(r.Pod) }),
	"unprepare":     needsStart(func(k *kubelet, r uidRequest) (any, error) { return nil, k.unprepare(r.UID) }),
	"claim_health":  needsStart(func(k *kubelet, r uidRequest) (any, error) { return k.claimHealth(r.UID) }),
	"pod_health":    needsStart(func(k *kubelet, r uidRequest) (any, error) { return k.podHealth(r.UID) }),
	"hints":         needsStart(func(k *kubelet, r podRequest) (any, error) { return k.hints(r.Pod) }),
	"capacity":      needsStart(func(k *kubelet, _ struct{}) (any, error) { return k.capacity(), nil }),
	"devices":       needsStart(func(k *kubelet, _ struct{}) (any, error) { return k.allocatableDevices(), nil }),
	"grace_passes":  needsStart(func(k *kubelet, r resourceRequest) (any, error) { return nil, k.gracePasses(r.Resource) }),
	"registrations": needsStart(func(*kubelet, struct{}) (any, error) { return registrations() }),
	"checkpoint":    needsStart(func(k *kubelet, _ struct{}) (any, error) { return readCheckpoint(k.checkpointPath()) }),
}

type podRequest struct {
	Pod podSpec `json:"pod"`
}

type resourceRequest struct {
	Resource string `json:"resource"`
}

type uidRequest struct {
	UID string `json:"uid"`
}

func startOperation(k *kubelet, line []byte) (any, error) {
	options := startOptions{Policy: "none", Scope: "container", SourcesReady: true}
	if err := json.Unmarshal(line, &options); err != nil {
		return nil, fmt.Errorf("start: %w", err)
	}
	return nil, k.start(options)
}

func needsStart[Request any](operation func(*kubelet, Request) (any, error)) func(*kubelet, []byte) (any, error) {
	return func(k *kubelet, line []byte) (any, error) {
		var request Request
		if err := json.Unmarshal(line, &request); err != nil {
			return nil, fmt.Errorf("not as the operation wants it: %w", err)
		}
		if !k.started.Load() {
			return nil, fmt.Errorf("start comes first")
		}
		return operation(k, request)
	}
}
