package main

import (
	"context"
	"encoding/json"
	"fmt"
	"os"
	"sync"

	v1 "k8s.io/api/core/v1"
	cloudprovider "k8s.io/cloud-provider"
)

// token is the one that a client has; a file with another one refuses it.
const token = "fake-token"

// cloud is a cloud in a file. It has instances, and neither load balancers nor routes.
type cloud struct {
	file string
	// log guards the file of requests.
	log sync.Mutex
}

// content is what is read of the file.
type content struct {
	Account struct {
		Token string `json:"token"`
	} `json:"account"`
	Instances []instance `json:"instances"`
}

type instance struct {
	ID           string   `json:"id"`
	Name         string   `json:"name"`
	Region       string   `json:"region"`
	Zone         string   `json:"zone"`
	State        string   `json:"state"`
	InstanceType string   `json:"instanceType"`
	Addresses    []string `json:"addresses"`
}

func (i instance) providerID() string {
	return fmt.Sprintf("fake:///%s/%s", i.Zone, i.ID)
}

// InstanceExists implements cloudprovider.InstancesV2.
func (c *cloud) InstanceExists(_ context.Context, node *v1.Node) (bool, error) {
	found, err := c.find("exists", node)
	return found != nil, err
}

// InstanceShutdown implements cloudprovider.InstancesV2.
func (c *cloud) InstanceShutdown(_ context.Context, node *v1.Node) (bool, error) {
	found, err := c.find("shutdown", node)
	if err == nil && found == nil {
		err = cloudprovider.InstanceNotFound
	}
	return found != nil && found.State == "stopped", err
}

// InstanceMetadata implements cloudprovider.InstancesV2.
func (c *cloud) InstanceMetadata(_ context.Context, node *v1.Node) (*cloudprovider.InstanceMetadata, error) {
	found, err := c.find("metadata", node)
	if err != nil {
		return nil, err
	}
	if found == nil {
		return nil, cloudprovider.InstanceNotFound
	}
	addresses := []v1.NodeAddress{{Type: v1.NodeHostName, Address: found.Name}}
	for _, address := range found.Addresses {
		addresses = append(addresses, v1.NodeAddress{Type: v1.NodeInternalIP, Address: address})
	}
	return &cloudprovider.InstanceMetadata{
		ProviderID:    found.providerID(),
		InstanceType:  found.InstanceType,
		NodeAddresses: addresses,
		Zone:          found.Zone,
		Region:        found.Region,
	}, nil
}

// find makes one request: it returns the instance with the Node's providerID, or with its name if it has none. It is nil if
// there is none, and several are an error.
func (c *cloud) find(request string, node *v1.Node) (*instance, error) {
	found, err := c.read(node)
	return found, c.record(request, node.Name, err)
}

func (c *cloud) read(node *v1.Node) (*instance, error) {
	text, err := os.ReadFile(c.file)
	if err != nil {
		return nil, err
	}
	var content content
	if err := json.Unmarshal(text, &content); err != nil {
		return nil, fmt.Errorf("the answer is not understood: %w", err)
	}
	if content.Account.Token != token {
		return nil, fmt.Errorf("the token is wrong")
	}
	var found *instance
	for i := range content.Instances {
		one := &content.Instances[i]
		fits := one.Name == node.Name
		if node.Spec.ProviderID != "" {
			fits = one.providerID() == node.Spec.ProviderID
		}
		if !fits {
			continue
		}
		if found != nil {
			return nil, fmt.Errorf("the instances %q and %q are both of the node %q", found.ID, one.ID, node.Name)
		}
		found = one
	}
	return found, nil
}

// record appends a line to the file of requests, and returns the error of the request.
func (c *cloud) record(request, node string, err error) error {
	c.log.Lock()
	defer c.log.Unlock()
	file, failed := os.OpenFile(c.file+".requests", os.O_APPEND|os.O_CREATE|os.O_WRONLY, 0o600)
	if failed != nil {
		return failed
	}
	defer file.Close()
	result := "ok"
	if err != nil {
		result = "error"
	}
	if _, failed := fmt.Fprintln(file, request, node, result); failed != nil {
		return failed
	}
	return err
}

// Initialize implements cloudprovider.Interface.
func (*cloud) Initialize(cloudprovider.ControllerClientBuilder, <-chan struct{}) {}

// LoadBalancer implements cloudprovider.Interface.
func (*cloud) LoadBalancer() (cloudprovider.LoadBalancer, bool) { return nil, false }

// Instances implements cloudprovider.Interface.
func (*cloud) Instances() (cloudprovider.Instances, bool) { return nil, false }

// InstancesV2 implements cloudprovider.Interface.
func (c *cloud) InstancesV2() (cloudprovider.InstancesV2, bool) { return c, true }

// Zones implements cloudprovider.Interface.
func (*cloud) Zones() (cloudprovider.Zones, bool) { return nil, false }

// Clusters implements cloudprovider.Interface.
func (*cloud) Clusters() (cloudprovider.Clusters, bool) { return nil, false }

// Routes implements cloudprovider.Interface.
func (*cloud) Routes() (cloudprovider.Routes, bool) { return nil, false }

// ProviderName implements cloudprovider.Interface.
func (*cloud) ProviderName() string { return "fake" }

// HasClusterID implements cloudprovider.Interface.
func (*cloud) HasClusterID() bool { return true }
