package main

import (
	"bytes"
	"errors"
	"io"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"go.yaml.in/yaml/v3"
)

// daemonSet is what matters here of a DaemonSet.
type daemonSet struct {
	Kind string
	Spec struct {
		Template struct {
			Spec struct {
				HostNetwork bool `yaml:"hostNetwork"`
				Containers  []struct {
					Args            []string
					SecurityContext struct {
						Capabilities struct{ Drop, Add []string }
					} `yaml:"securityContext"`
					VolumeMounts []struct {
						Name      string
						MountPath string `yaml:"mountPath"`
						ReadOnly  bool   `yaml:"readOnly"`
					} `yaml:"volumeMounts"`
				}
				Volumes []struct{ Name string }
			}
		}
	}
}

// The cluster's edged gets a command line that it takes, the rights and the directories that it needs, and no others.
func TestKubernetes(t *testing.T) {
	text, err := os.ReadFile(filepath.Join("..", "..", "deploy", "kubernetes.yaml"))
	must(t, err)
	var set daemonSet
	for dec := yaml.NewDecoder(bytes.NewReader(text)); set.Kind != "DaemonSet"; {
		set = daemonSet{}
		if err := dec.Decode(&set); errors.Is(err, io.EOF) {
			t.Fatal("there is no DaemonSet")
		} else if err != nil {
			t.Fatal(err)
		}
	}
	pod := set.Spec.Template.Spec
	if !pod.HostNetwork || len(pod.Containers) != 1 {
		t.Fatalf("%+v", pod)
	}
	c := pod.Containers[0]
	cfg, err := parse(t, c.Args...).config()
	if err == nil {
		err = cfg.Normalize()
	}
	if err != nil || len(cfg.Links) == 0 || !strings.HasSuffix(cfg.Metrics.Listen, ":9469") {
		t.Fatalf("%v: %v %+v", c.Args, err, cfg)
	}
	if caps := c.SecurityContext.Capabilities; !slices.Equal(caps.Drop, []string{"ALL"}) || !slices.Equal(caps.Add,
		[]string{"NET_RAW", "IPC_LOCK"}) {
		t.Errorf("capabilities %+v", caps)
	}
	// where root's daemon has its files, and whether it may be read only
	need := map[string]bool{"/run/edged": false, "/var/lib/edged": false, "/etc/edged": true}
	for _, m := range c.VolumeMounts {
		readOnly, ok := need[m.MountPath]
		if !ok || m.ReadOnly != readOnly {
			t.Errorf("mount %+v is not needed, or not that way", m)
		}
		delete(need, m.MountPath)
		if !slices.ContainsFunc(pod.Volumes, func(v struct{ Name string }) bool { return v.Name == m.Name }) {
			t.Errorf("mount %+v names no volume of %+v", m, pod.Volumes)
		}
	}
	if len(need) > 0 {
		t.Errorf("nothing is mounted at %v", need)
	}
}
