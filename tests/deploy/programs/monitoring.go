package main

import (
	"fmt"
	"io"
	"os"

	monitoring "github.com/prometheus-operator/prometheus-operator/pkg/apis/monitoring/v1"
	"sigs.k8s.io/yaml"
)

// checkMonitoring reads one object of the Prometheus operator from stdin: a field that its types do not know is an error.
func checkMonitoring() error {
	content, err := io.ReadAll(os.Stdin)
	if err != nil {
		return err
	}
	var object struct{ Kind string }
	if err := yaml.Unmarshal(content, &object); err != nil {
		return err
	}
	switch object.Kind {
	case "PodMonitor":
		return yaml.UnmarshalStrict(content, &monitoring.PodMonitor{})
	case "PrometheusRule":
		return yaml.UnmarshalStrict(content, &monitoring.PrometheusRule{})
	}
	return fmt.Errorf("%q is neither PodMonitor nor PrometheusRule", object.Kind)
}
