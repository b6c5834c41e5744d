package main

import (
	"bytes"
	"errors"
	"io"
	"net"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"testing"

	"go.yaml.in/yaml/v3"

	"multiedge/internal/config"
)

// securityContext, container and pod are what matters here of Kubernetes' objects of these names.
type securityContext struct {
	User         *int  `yaml:"runAsUser"`
	Group        *int  `yaml:"runAsGroup"`
	NonRoot      bool  `yaml:"runAsNonRoot"`
	Groups       []int `yaml:"supplementalGroups"`
	Escalation   *bool `yaml:"allowPrivilegeEscalation"`
	Capabilities struct{ Drop, Add []string }
}

type container struct {
	Name            string
	Args, Command   []string
	SecurityContext securityContext `yaml:"securityContext"`
	VolumeMounts    []struct {
		Name      string
		MountPath string `yaml:"mountPath"`
		ReadOnly  bool   `yaml:"readOnly"`
	} `yaml:"volumeMounts"`
	Liveness  probe `yaml:"livenessProbe"`
	Readiness probe `yaml:"readinessProbe"`
}

type probe struct {
	Get struct {
		Host, Path string
		Port       int
	} `yaml:"httpGet"`
}

type pod struct {
	HostNetwork     bool            `yaml:"hostNetwork"`
	SecurityContext securityContext `yaml:"securityContext"`
	Containers      []container
	Volumes         []struct{ Name string }
}

// object reads the first object of a kind out of a file of deploy, its specification into spec.
func object(t *testing.T, file, kind string, spec any) {
	t.Helper()
	text, err := os.ReadFile(filepath.Join("..", "..", "deploy", file))
	must(t, err)
	for dec := yaml.NewDecoder(bytes.NewReader(text)); ; {
		var o struct {
			Kind string
			Spec yaml.Node
		}
		if err := dec.Decode(&o); errors.Is(err, io.EOF) {
			t.Fatalf("%s: there is no %s", file, kind)
		} else if err != nil {
			t.Fatal(err)
		}
		if o.Kind == kind {
			must(t, o.Spec.Decode(spec))
			return
		}
	}
}

func clusterPod(t *testing.T) *pod {
	var set struct{ Template struct{ Spec pod } }
	object(t, "kubernetes.yaml", "DaemonSet", &set)
	if p := &set.Template.Spec; p.HostNetwork && len(p.Containers) == 2 && p.Containers[0].Name == "edged" {
		return p
	}
	t.Fatalf("%+v", set)
	return nil
}

// mounts checks that a container mounts these directories and no others; true: to read only.
func (c *container) mounts(t *testing.T, p *pod, need map[string]bool) {
	t.Helper()
	for _, m := range c.VolumeMounts {
		readOnly, ok := need[m.MountPath]
		if !ok || m.ReadOnly != readOnly {
			t.Errorf("%s: mount %+v is not needed, or not that way", c.Name, m)
		}
		delete(need, m.MountPath)
		if !slices.ContainsFunc(p.Volumes, func(v struct{ Name string }) bool { return v.Name == m.Name }) {
			t.Errorf("%s: mount %+v names no volume of %+v", c.Name, m, p.Volumes)
		}
	}
	if len(need) > 0 {
		t.Errorf("%s: nothing is mounted at %v", c.Name, need)
	}
}

// The cluster's edged gets a command line that it takes, the rights and the directories that it needs, and no others.
func TestKubernetes(t *testing.T) {
	p := clusterPod(t)
	c := &p.Containers[0]
	cfg, err := parse(t, c.Args...).config()
	if err == nil {
		err = errors.Join(cfg.Normalize(), cfg.CheckFiles())
	}
	if err != nil || len(cfg.Links) == 0 {
		t.Fatalf("%v: %v %+v", c.Args, err, cfg)
	}
	want := []string{"NET_RAW", "IPC_LOCK", "CHOWN", "SETUID", "SETGID"}
	sc := c.SecurityContext
	if !slices.Equal(sc.Capabilities.Drop, []string{"ALL"}) || !slices.Equal(sc.Capabilities.Add, want) ||
		sc.Escalation == nil || *sc.Escalation {
		t.Errorf("rights %+v", sc)
	}
	c.mounts(t, p, map[string]bool{filepath.Dir(cfg.Socket): false, filepath.Dir(cfg.KeyFile): false,
		filepath.Dir(cfg.PeersFile): true})
	// the network is the node's: whoever reaches the node would read the metrics
	host, port, err := net.SplitHostPort(cfg.Metrics.Listen)
	if err != nil || !net.ParseIP(host).IsLoopback() {
		t.Errorf("metrics at %q are open to the network", cfg.Metrics.Listen)
	}
	for path, p := range map[string]*probe{"/livez": &c.Liveness, "/readyz": &c.Readiness} {
		if p.Get.Host != host || p.Get.Path != path || strconv.Itoa(p.Get.Port) != port {
			t.Errorf("probe %+v asks another place than %s", p, cfg.Metrics.Listen)
		}
	}
}

// Pods on a network of IP run edged without any right: it is nobody's but a user's, of the pod's network alone.
func TestKubernetesPods(t *testing.T) {
	var set struct{ Template struct{ Spec pod } }
	object(t, "kubernetes.pod.yaml", "StatefulSet", &set)
	p := &set.Template.Spec
	if sc := p.SecurityContext; p.HostNetwork || !sc.NonRoot || sc.User == nil || *sc.User == 0 ||
		len(p.Containers) != 2 {
		t.Fatalf("%+v", p)
	}
	for _, c := range p.Containers {
		sc := c.SecurityContext
		if !slices.Equal(sc.Capabilities.Drop, []string{"ALL"}) || len(sc.Capabilities.Add) > 0 ||
			sc.Escalation == nil || *sc.Escalation || sc.User != nil {
			t.Errorf("%s: rights %+v", c.Name, sc)
		}
	}
	p.Volumes = append(p.Volumes, struct{ Name string }{"key"}) // a claim's
	c := &p.Containers[0]
	cfg, err := parse(t, c.Args...).config()
	if err == nil {
		err = errors.Join(cfg.Normalize(), cfg.CheckFiles())
	}
	if err != nil || len(cfg.Links) != 1 || cfg.Links[0].Listen == "" || cfg.Security != config.Encrypted {
		t.Fatalf("%v: %v %+v", c.Args, err, cfg)
	}
	c.mounts(t, p, map[string]bool{filepath.Dir(cfg.Socket): false, filepath.Dir(filepath.Dir(cfg.KeyFile)): false,
		filepath.Dir(cfg.PeersFile): true})
	var service struct {
		Ports []struct {
			Protocol string
			Port     int
		}
	}
	object(t, "kubernetes.pod.yaml", "Service", &service)
	_, port, _ := net.SplitHostPort(cfg.Links[0].Listen)
	if len(service.Ports) != 1 || service.Ports[0].Protocol != "UDP" || strconv.Itoa(service.Ports[0].Port) != port {
		t.Errorf("the service has %+v, and edged listens at %s", service.Ports, cfg.Links[0].Listen)
	}
}

// Neither edged nor whoever administers it is user 0, which every pod may be, and programs in pods are neither; they
// cannot put another socket in its place.
func TestKubernetesTrustsNoRoot(t *testing.T) {
	p := clusterPod(t)
	f := parse(t, p.Containers[0].Args...)
	who, err := lookUp(f.User)
	must(t, err)
	cfg, err := f.config()
	must(t, err)
	admins, err := cfg.ResolveAdmins()
	must(t, err)
	if f.User == "" || who.uid == 0 || !slices.Equal(admins, config.Admins{uint32(who.uid)}) {
		t.Errorf("edged runs as user %q and is administered by %v", f.User, admins)
	}
	ctl := &p.Containers[1]
	sc := ctl.SecurityContext
	if sc.User == nil || *sc.User != who.uid || len(sc.Capabilities.Add) > 0 || ctl.Command[0] != "edgectl" {
		t.Errorf("the administrator's container: %+v", ctl)
	}
	ctl.mounts(t, p, map[string]bool{"/run/edged": true})
	var client pod
	object(t, "kubernetes.client.yaml", "Pod", &client)
	group, err := cfg.GroupID()
	must(t, err)
	sc = client.SecurityContext
	if !sc.NonRoot || sc.User == nil || *sc.User == 0 || *sc.User == who.uid || !slices.Equal(sc.Groups, []int{group}) {
		t.Errorf("the client's rights: %+v", sc)
	}
	for i := range client.Containers {
		c := &client.Containers[i]
		if c.SecurityContext.User != nil || len(c.SecurityContext.Capabilities.Add) > 0 {
			t.Errorf("the client's container has other rights: %+v", c.SecurityContext)
		}
		c.mounts(t, &client, map[string]bool{"/run/edged": true})
	}
}
