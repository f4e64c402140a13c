package main

import "k8s.io/component-base/metrics/legacyregistry"

// registrations is kubelet_device_plugin_registration_total by resource name: calls of Register, also refused ones.
func registrations() (map[string]float64, error) {
	families, err := legacyregistry.DefaultGatherer.Gather()
	if err != nil {
		return nil, err
	}
	counted := map[string]float64{}
	for _, family := range families {
		if family.GetName() != "kubelet_device_plugin_registration_total" {
			continue
		}
		for _, metric := range family.GetMetric() {
			counted[metric.GetLabel()[0].GetValue()] = metric.GetCounter().GetValue()
		}
	}
	return counted, nil
}
