// Command aws-config reads configurations, a JSON list of texts, as the cloud-controller-manager of AWS does, and prints
// what it made of each: its error, what it ignored, and the configuration.
package main

import (
	"encoding/json"
	"os"

	"gopkg.in/gcfg.v1"
	"k8s.io/cloud-provider-aws/pkg/providers/v1/config"
)

type answer struct {
	Error   string
	Ignored string
	Config  config.CloudConfig
}

func main() {
	var texts []string
	if err := json.NewDecoder(os.Stdin).Decode(&texts); err != nil {
		panic(err)
	}
	answers := make([]answer, len(texts))
	for i, text := range texts {
		read := &answers[i]
		err := gcfg.ReadStringInto(&read.Config, text)
		if fatal := gcfg.FatalOnly(err); fatal != nil {
			read.Error = fatal.Error()
		} else if err != nil {
			read.Ignored = err.Error()
		}
		if read.Error == "" {
			if err = read.Config.ValidateOverrides(); err != nil {
				read.Error = err.Error()
			}
		}
	}
	if err := json.NewEncoder(os.Stdout).Encode(answers); err != nil {
		panic(err)
	}
}
