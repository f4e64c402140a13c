package fakeruntime

import (
	"bufio"
	"encoding/json"
	"fmt"
	"io"
	"time"

	"google.golang.org/protobuf/encoding/protojson"
	cri "k8s.io/cri-api/pkg/apis/runtime/v1"
)

// question is one line on stdin: `containers` wants all there ever were, `exit` lets one end as if its process had, and `linger`
// lets it take so many seconds to end when it is told to.
type question struct {
	Op      string `json:"op"`
	ID      string `json:"id"`
	Code    int32  `json:"code"`
	Seconds int    `json:"seconds"`
}

// shown is a container as stdout tells of it; the request is CRI's CreateContainerRequest, with the field names of its proto file.
type shown struct {
	ID        string          `json:"id"`
	SandboxID string          `json:"sandbox_id"`
	State     string          `json:"state"` // of CRI's ContainerState, or REMOVED
	ExitCode  int32           `json:"exit_code"`
	Request   json.RawMessage `json:"request"`
}

// answer answers each line of questions with one line, and calls ended when there are no more.
func answer(r *runtime, questions io.Reader, answers io.Writer, ended func()) {
	defer ended()
	lines := bufio.NewScanner(questions)
	encoder := json.NewEncoder(answers)
	for lines.Scan() {
		result, err := r.answerTo(lines.Bytes())
		answer := map[string]any{"result": result, "error": ""}
		if err != nil {
			answer["error"] = err.Error()
		}
		if encoder.Encode(answer) != nil {
			return
		}
	}
}

func (r *runtime) answerTo(line []byte) (any, error) {
	var asked question
	if err := json.Unmarshal(line, &asked); err != nil {
		return nil, err
	}
	r.mutex.Lock()
	defer r.mutex.Unlock()
	switch asked.Op {
	case "containers":
		return r.show()
	case "exit":
		found, err := r.container(asked.ID)
		if err == nil {
			found.exit(asked.Code)
		}
		return nil, err
	case "linger":
		found, err := r.container(asked.ID)
		if err == nil {
			found.lingers = time.Duration(asked.Seconds) * time.Second
		}
		return nil, err
	}
	return nil, fmt.Errorf("no operation %q", asked.Op)
}

func (r *runtime) show() (any, error) {
	all := []shown{}
	for _, each := range r.containers {
		request, err := protojson.MarshalOptions{UseProtoNames: true}.Marshal(each.request)
		if err != nil {
			return nil, err
		}
		all = append(all, shown{each.status.Id, each.sandboxID, each.state(), each.status.ExitCode, request})
	}
	return all, nil
}

func (c *container) state() string {
	if c.removed {
		return "REMOVED"
	}
	return cri.ContainerState_name[int32(c.status.State)]
}
