module github.com/ccm-operator/ccm-operator/hack/ccm/read

go 1.26.0

require gopkg.in/gcfg.v1 v1.2.3

require gopkg.in/warnings.v0 v0.1.2 // indirect
