package metrics

import (
	"context"
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/tls"
	"crypto/x509"
	"encoding/pem"
	"log/slog"
	"math/big"
	"net"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"multiedge/internal/config"
)

// lines takes what a logger writes.
type lines chan string

func (l lines) Write(b []byte) (int, error) {
	l <- string(b)
	return len(b), nil
}

// warnings returns a logger and what it is warned of.
func warnings() (*slog.Logger, lines) {
	l := make(lines, 100)
	return slog.New(slog.NewTextHandler(l, &slog.HandlerOptions{Level: slog.LevelWarn})), l
}

func write(t *testing.T, path, text string) {
	t.Helper()
	must(t, os.WriteFile(path, []byte(text), 0o600))
}

// makeCertificate makes cert.pem and key.pem for 127.0.0.1 in dir, and returns who trusts them.
func makeCertificate(t *testing.T, dir string) *x509.CertPool {
	t.Helper()
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	must(t, err)
	now := time.Now()
	form := &x509.Certificate{SerialNumber: big.NewInt(1), NotBefore: now.Add(-time.Hour), NotAfter: now.Add(time.Hour),
		IPAddresses: []net.IP{{127, 0, 0, 1}}}
	cert, err := x509.CreateCertificate(rand.Reader, form, form, key.Public(), key)
	must(t, err)
	secret, err := x509.MarshalPKCS8PrivateKey(key)
	must(t, err)
	public := pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: cert})
	write(t, filepath.Join(dir, "cert.pem"), string(public))
	write(t, filepath.Join(dir, "key.pem"), string(pem.EncodeToMemory(&pem.Block{Type: "PRIVATE KEY", Bytes: secret})))
	pool := x509.NewCertPool()
	pool.AppendCertsFromPEM(public)
	return pool
}

// The hash is bcrypt's of "scrape".
const (
	tlsOnly = "tls_server_config: {cert_file: cert.pem, key_file: key.pem}\n"
	users   = `basic_auth_users: {prometheus: "$2a$04$/C43rX2Fs0Z3EW6GsDMQ.uUs5P0H8uMgvQEe1QqbkXDGZRKjXj90m"}` + "\n"
)

// status asks for a URL, with a password if there is one.
func status(t *testing.T, client *http.Client, url, password string) int {
	t.Helper()
	req, err := http.NewRequestWithContext(t.Context(), http.MethodGet, url, nil)
	must(t, err)
	if password != "" {
		req.SetBasicAuth("prometheus", password)
	}
	resp, err := client.Do(req)
	must(t, err)
	resp.Body.Close()
	return resp.StatusCode
}

func TestServeTLSToUsers(t *testing.T) {
	dir := t.TempDir()
	pool := makeCertificate(t, dir)
	file := filepath.Join(dir, "web.yml")
	write(t, file, tlsOnly+users)
	ctx, cancel := context.WithCancel(t.Context())
	defer cancel()
	log, warned := warnings()
	h := Handler(sample(), "1")
	addr, err := Serve(ctx, config.Metrics{Listen: "127.0.0.1:0", WebConfig: file}, h, log,
		func(err error) { t.Error(err) })
	must(t, err)
	client := &http.Client{Timeout: time.Minute, Transport: &http.Transport{TLSClientConfig: &tls.Config{RootCAs: pool},
		ForceAttemptHTTP2: true}}
	defer client.CloseIdleConnections()
	for _, path := range []string{"/metrics", "/livez", "/readyz"} {
		for password, want := range map[string]int{"scrape": 200, "scrap": 401, "": 401} {
			if got := status(t, client, "https://"+addr.String()+path, password); got != want {
				t.Errorf("%s with password %q: %d, want %d", path, password, got, want)
			}
		}
	}
	if got := status(t, http.DefaultClient, "http://"+addr.String()+"/metrics", "scrape"); got != 400 {
		t.Errorf("without TLS: %d", got)
	}
	if resp, err := http.Get("https://" + addr.String() + "/livez"); err == nil {
		t.Errorf("a client that does not know the certificate: %d", resp.StatusCode)
	}
	for range 2 {
		if line := <-warned; !strings.Contains(line, "TLS handshake error") || !strings.Contains(line,
			"endpoint=metrics") {
			t.Errorf("logged: %s", line)
		}
	}
	write(t, file, tlsOnly+strings.Replace(users, "prometheus", "other", 1))
	if got := status(t, client, "https://"+addr.String()+"/metrics", "scrape"); got != 401 {
		t.Errorf("a user that is not in the file any more: %d", got)
	}
	write(t, file, "unknown: key\n")
	if got := status(t, client, "https://"+addr.String()+"/metrics", "scrape"); got != 500 {
		t.Errorf("a file spoilt meanwhile: %d", got)
	}
	if line := <-warned; !strings.Contains(line, "field unknown not found") {
		t.Errorf("logged: %s", line)
	}
}

// A request under way does not hold up the end.
func TestServeEnds(t *testing.T) {
	dir := t.TempDir()
	pool := makeCertificate(t, dir)
	write(t, filepath.Join(dir, "web.yml"), tlsOnly)
	for scheme, file := range map[string]string{"http": "", "https": filepath.Join(dir, "web.yml")} {
		ctx, cancel := context.WithCancel(t.Context())
		asked := http.HandlerFunc(func(_ http.ResponseWriter, r *http.Request) {
			cancel()
			<-r.Context().Done()
		})
		addr, err := Serve(ctx, config.Metrics{Listen: "127.0.0.1:0", WebConfig: file}, asked,
			slog.New(slog.DiscardHandler), func(err error) { t.Error(err) })
		must(t, err)
		client := &http.Client{Timeout: time.Minute,
			Transport: &http.Transport{TLSClientConfig: &tls.Config{RootCAs: pool}}}
		resp, err := client.Get(scheme + "://" + addr.String())
		if err == nil || os.IsTimeout(err) {
			t.Errorf("%s: answered %v, %v", scheme, resp, err)
		}
		cancel()
	}
}

func TestWebConfigErrors(t *testing.T) {
	dir := t.TempDir()
	makeCertificate(t, dir)
	file := filepath.Join(dir, "web.yml")
	cfg := config.Metrics{Listen: "127.0.0.1:0", WebConfig: file}
	for _, c := range []struct{ name, text, want string }{
		{"missing file", "", "no such file"},
		{"unknown key", "tls_config: {cert_file: cert.pem}\n", "field tls_config not found"},
		{"password in the clear", "basic_auth_users: {prometheus: scrape}\n", "bcrypt"},
		{"missing certificate", "tls_server_config: {cert_file: none.pem, key_file: key.pem}\n", "cert_file (" + dir +
			"/none.pem)"},
		{"no key", "tls_server_config: {cert_file: cert.pem}\n", "missing one of key or key_file"},
		{"key for certificate", "tls_server_config: {cert_file: key.pem, key_file: cert.pem}\n", "X509KeyPair"},
	} {
		if c.text != "" {
			write(t, file, c.text)
		}
		_, err := Serve(t.Context(), cfg, nil, slog.New(slog.DiscardHandler), nil)
		if err == nil {
			t.Errorf("%s: no error", c.name)
			continue
		}
		for _, want := range []string{"metrics.web_config " + file, c.want, "--metrics-web-config"} {
			if !strings.Contains(err.Error(), want) {
				t.Errorf("%s: %v, without %q", c.name, err, want)
			}
		}
	}
	if err := Check(config.Metrics{WebConfig: file}); err != nil {
		t.Errorf("the file matters though nothing is served: %v", err)
	}
}

// Metrics that other hosts can read by plain HTTP are warned of.
func TestServeWarnsOfOtherHosts(t *testing.T) {
	dir := t.TempDir()
	makeCertificate(t, dir)
	web := filepath.Join(dir, "web.yml")
	write(t, web, tlsOnly)
	for _, c := range []struct {
		cfg    config.Metrics
		warned bool
	}{
		{config.Metrics{Listen: "127.0.0.1:0"}, false},
		{config.Metrics{Listen: ":0"}, true},
		{config.Metrics{Listen: ":0", WebConfig: web}, false},
	} {
		log, warned := warnings()
		if _, err := Serve(t.Context(), c.cfg, http.NotFoundHandler(), log, func(error) {}); err != nil {
			t.Fatal(err)
		}
		select {
		case line := <-warned:
			if !c.warned || !strings.Contains(line, "metrics.web_config") {
				t.Errorf("%+v: warned of %s", c.cfg, line)
			}
		default: // a warning comes before Serve returns
			if c.warned {
				t.Errorf("%+v: no warning", c.cfg)
			}
		}
	}
}
