// The harness is the device manager, topology manager, DRA manager and plugin manager of a real kubelet as one program,
// driven by lines of JSON: one request on stdin, one answer on stdout. See ../README.md for the protocol.
//
// One process is one life of a kubelet. It ends when stdin does.
package main

import (
	"bufio"
	"encoding/json"
	"flag"
	"fmt"
	"os"
	"runtime/debug"

	"k8s.io/klog/v2"
)

// Checkpoints, pods and requests are small; a longer line is a mistake.
const longestLine = 4 << 20

func main() {
	klog.InitFlags(nil)
	_ = flag.Set("v", "2")
	flag.Parse()

	answers := newAnswers(os.Stdout)
	kubelet := newKubelet(answers.event)
	lines := bufio.NewScanner(os.Stdin)
	lines.Buffer(nil, longestLine)
	for lines.Scan() {
		line := append([]byte(nil), lines.Bytes()...)
		// A plugin that hangs in Allocate holds up admissions, and nothing else that is asked.
		go answers.answer(line, kubelet)
	}
	if err := lines.Err(); err != nil {
		fmt.Fprintln(os.Stderr, "harness: stdin:", err)
		os.Exit(1)
	}
}

// answer never lets a request end the process: what is wrong with it is the answer.
func (a *answers) answer(line []byte, kubelet *kubelet) {
	var envelope struct {
		ID json.RawMessage `json:"id"`
		Op string          `json:"op"`
	}
	defer func() {
		if reason := recover(); reason != nil {
			fmt.Fprintf(os.Stderr, "harness: %s: %v\n%s", envelope.Op, reason, debug.Stack())
			a.failure(envelope.ID, fmt.Errorf("%s: %v", envelope.Op, reason))
		}
	}()
	if err := json.Unmarshal(line, &envelope); err != nil {
		a.failure(envelope.ID, fmt.Errorf("not a request: %w", err))
		return
	}
	operation, known := operations[envelope.Op]
	if !known {
		a.failure(envelope.ID, fmt.Errorf("no operation %q", envelope.Op))
		return
	}
	result, err := operation(kubelet, line)
	if err != nil {
		a.failure(envelope.ID, err)
		return
	}
	a.success(envelope.ID, result)
}
