package main

import (
	"encoding/json"
	"io"
	"sync"
)

// answers are the lines on stdout: a result or an error with the id of its request, or an event of the kubelet's own.
type answers struct {
	mutex   sync.Mutex
	encoder *json.Encoder
}

func newAnswers(to io.Writer) *answers {
	return &answers{encoder: json.NewEncoder(to)}
}

func (a *answers) success(id json.RawMessage, result any) {
	a.write(map[string]any{"id": id, "result": result})
}

func (a *answers) failure(id json.RawMessage, err error) {
	a.write(map[string]any{"id": id, "error": err.Error()})
}

func (a *answers) event(name string, content any) {
	a.write(map[string]any{"event": name, "content": content})
}

func (a *answers) write(line map[string]any) {
	a.mutex.Lock()
	defer a.mutex.Unlock()
	// Nobody reads any more: stdin is about to end too.
	_ = a.encoder.Encode(line)
}
