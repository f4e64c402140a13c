package main

import (
	"encoding/json"
	"os"

	"k8s.io/kubernetes/pkg/kubelet/cm/devicemanager/checkpoint"
)

// checkpointFile is the file as it is, and as the kubelet's own code reads it.
type checkpointFile struct {
	Path string `json:"path"`
	// Error is why the kubelet would not believe it.
	Error      string              `json:"error"`
	Content    json.RawMessage     `json:"content"`
	Pods       []checkpointEntry   `json:"pods"`
	Registered map[string][]string `json:"registered"`
}

type checkpointEntry struct {
	UID       string             `json:"uid"`
	Container string             `json:"container"`
	Resource  string             `json:"resource"`
	Devices   map[int64][]string `json:"devices"`
}

func readCheckpoint(path string) (*checkpointFile, error) {
	content, err := os.ReadFile(path)
	if err != nil {
		return nil, err
	}
	file := &checkpointFile{Path: path}
	read := checkpoint.New(nil, nil)
	if err := read.UnmarshalCheckpoint(content); err != nil {
		file.Error = err.Error()
		return file, nil
	}
	file.Content = content
	if err := read.VerifyChecksum(); err != nil {
		file.Error = err.Error()
	}
	entries, registered := read.GetData()
	file.Registered = registered
	for _, entry := range entries {
		file.Pods = append(file.Pods, checkpointEntry{entry.PodUID, entry.ContainerName, entry.ResourceName, entry.DeviceIDs})
	}
	return file, nil
}
