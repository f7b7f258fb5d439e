//go:build modules

// This file pins, beside what the binary is built from, the module whose folder holds OpenShift's CRDs.
package main

import _ "github.com/openshift/api"
