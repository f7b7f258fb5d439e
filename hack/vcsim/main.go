// Command vcsim is the vCenter of a test: govmomi's simulator, with what a cloud-controller-manager asks of a vCenter, and a
// small client for it.
//
//	vcsim serve USER PASSWORD             prints one line of JSON, then serves on a port of 127.0.0.1 until SIGTERM
//	vcsim power-off|power-on|destroy VM   at the vCenter whose URL, with user and password, is $VCENTER
//	vcsim hostname VM NAME                what VMware Tools report; without a name, they do not run
package main

import (
	"context"
	"crypto/tls"
	"encoding/json"
	"encoding/pem"
	"fmt"
	"log"
	"net/url"
	"os"
	"os/signal"
	"slices"
	"syscall"

	"github.com/vmware/govmomi"
	"github.com/vmware/govmomi/find"
	"github.com/vmware/govmomi/object"
	"github.com/vmware/govmomi/simulator"
	"github.com/vmware/govmomi/vapi/rest"
	_ "github.com/vmware/govmomi/vapi/simulator" // /rest and /api: the tags
	"github.com/vmware/govmomi/vapi/tags"
	"github.com/vmware/govmomi/vim25/methods"
	"github.com/vmware/govmomi/vim25/mo"
	"github.com/vmware/govmomi/vim25/soap"
	"github.com/vmware/govmomi/vim25/types"
)

// What the simulator calls its datacenter and the cluster of hosts in it; and another datacenter, without machines.
const datacenter, cluster, empty = "DC0", "DC0_C0", "DC1"

func main() {
	log.SetFlags(0)
	switch {
	case len(os.Args) == 4 && os.Args[1] == "serve":
		serve(os.Args[2], os.Args[3])
	case len(os.Args) == 3:
		change(os.Args[1], os.Args[2], "")
	case len(os.Args) == 4:
		change(os.Args[1], os.Args[2], os.Args[3])
	default:
		log.Fatal("usage: vcsim serve USER PASSWORD | power-off VM | power-on VM | destroy VM | hostname VM NAME")
	}
}

// vm is a machine as its guest and its BIOS show it.
type vm struct {
	Name     string `json:"name"`
	Hostname string `json:"hostname"`
	UUID     string `json:"uuid"`
	Address  string `json:"address"`
}

func serve(user, password string) {
	m := simulator.VPX()
	m.ClusterHost, m.Host, m.Machine = 1, 0, 12
	check(m.Create())
	// Without a user, the simulator accepts every password.
	m.Service.Listen = &url.URL{Host: "127.0.0.1:0", User: url.UserPassword(user, password)}
	m.Service.TLS = new(tls.Config)
	m.Service.RegisterEndpoints = true // of vapi/simulator
	machines := machines(m)
	index := m.Map().Get(types.ManagedObjectReference{Type: "SearchIndex", Value: "SearchIndex"})
	m.Map().Put(&searchIndex{SearchIndex: *index.(*simulator.SearchIndex)})
	s := m.Service.NewServer()
	tag(s.URL)
	certificate := pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: s.Certificate().Raw})
	check(json.NewEncoder(os.Stdout).Encode(map[string]any{
		"url": s.URL.String(), "port": s.URL.Port(), "certificate": string(certificate), "datacenter": datacenter, "empty": empty,
		"machines": machines,
	}))
	stop := make(chan os.Signal, 1)
	signal.Notify(stop, syscall.SIGTERM)
	<-stop
	s.Close()
	m.Remove() // its temporary folders
}

// searchIndex looks only in the datacenter that it is asked about, as a vCenter does: the simulator's looks everywhere.
type searchIndex struct {
	simulator.SearchIndex
}

func (s *searchIndex) FindByUuid(ctx *simulator.Context, req *types.FindByUuid) soap.HasFault {
	r := s.SearchIndex.FindByUuid(ctx, req)
	if b := r.(*methods.FindByUuidBody); b.Res != nil && b.Res.Returnval != nil && !inside(ctx, req.Datacenter, *b.Res.Returnval) {
		b.Res.Returnval = nil
	}
	return r
}

func (s *searchIndex) FindAllByDnsName(ctx *simulator.Context, req *types.FindAllByDnsName) soap.HasFault {
	r := s.SearchIndex.FindAllByDnsName(ctx, req)
	if b := r.(*methods.FindAllByDnsNameBody); b.Res != nil {
		b.Res.Returnval = slices.DeleteFunc(b.Res.Returnval, func(ref types.ManagedObjectReference) bool {
			return !inside(ctx, req.Datacenter, ref)
		})
	}
	return r
}

func inside(ctx *simulator.Context, datacenter *types.ManagedObjectReference, ref types.ManagedObjectReference) bool {
	for datacenter != nil && ref != *datacenter {
		entity, ok := ctx.Map.Get(ref).(mo.Entity)
		if !ok || entity.Entity().Parent == nil {
			return false
		}
		ref = *entity.Entity().Parent
	}
	return true
}

// machines gives the VMs what VMware Tools would report.
func machines(m *simulator.Model) []vm {
	var all []vm
	for i, o := range m.Map().All("VirtualMachine") {
		v := o.(*simulator.VirtualMachine)
		one := vm{v.Name, fmt.Sprintf("node-%d", i), fmt.Sprintf("%08x-1111-2222-3333-444455556666", 0x42000000+i), fmt.Sprintf("192.0.2.%d", 10+i)}
		v.Config.Uuid, v.Summary.Config.Uuid = one.UUID, one.UUID
		v.Guest.HostName, v.Summary.Guest.HostName = one.Hostname, one.Hostname
		// Of a device: -1 stands for an address of none, such as a virtual IP, which is skipped.
		v.Guest.Net = []types.GuestNicInfo{{Network: "VM Network", Connected: true, DeviceConfigId: 4000, IpAddress: []string{one.Address}}}
		all = append(all, one)
	}
	return all
}

// tag marks the datacenter as region-a, and the cluster of hosts as zone-1; and makes the other datacenter.
func tag(u *url.URL) {
	ctx := context.Background()
	c, f := connect(ctx, u)
	_, err := object.NewRootFolder(c.Client).CreateDatacenter(ctx, empty)
	check(err)
	rc := rest.NewClient(c.Client)
	check(rc.Login(ctx, u.User))
	tm := tags.NewManager(rc)
	dc, err := f.Datacenter(ctx, datacenter)
	check(err)
	hosts, err := f.ClusterComputeResource(ctx, cluster)
	check(err)
	for _, t := range []struct {
		category, name string
		on             mo.Reference
	}{{"k8s-region", "region-a", dc}, {"k8s-zone", "zone-1", hosts}} {
		category, err := tm.CreateCategory(ctx, &tags.Category{Name: t.category})
		check(err)
		id, err := tm.CreateTag(ctx, &tags.Tag{Name: t.name, CategoryID: category})
		check(err)
		check(tm.AttachTag(ctx, id, t.on))
	}
	check(rc.Logout(ctx))
	check(c.Logout(ctx))
}

func change(what, name, value string) {
	u, err := soap.ParseURL(os.Getenv("VCENTER"))
	check(err)
	ctx := context.Background()
	c, f := connect(ctx, u)
	v, err := f.VirtualMachine(ctx, name)
	check(err)
	var task *object.Task
	switch what {
	case "power-off":
		task, err = v.PowerOff(ctx)
	case "power-on":
		task, err = v.PowerOn(ctx)
	case "destroy":
		task, err = v.Destroy(ctx)
	case "hostname":
		task, err = v.Reconfigure(ctx, types.VirtualMachineConfigSpec{ExtraConfig: []types.BaseOptionValue{
			&types.OptionValue{Key: "SET.guest.hostName", Value: value}}})
	default:
		log.Fatal("unknown: ", what)
	}
	check(err)
	check(task.Wait(ctx))
	check(c.Logout(ctx))
}

func connect(ctx context.Context, u *url.URL) (*govmomi.Client, *find.Finder) {
	c, err := govmomi.NewClient(ctx, u, true)
	check(err)
	f := find.NewFinder(c.Client)
	dc, err := f.Datacenter(ctx, datacenter)
	check(err)
	return c, f.SetDatacenter(dc)
}

func check(err error) {
	if err != nil {
		log.Fatal(err)
	}
}
