// Package kubeapi is a minimal client of the API server and of etcd: health checks, server-side apply, delete and watch.
// client-go would make PID 1, which runs as long as the node, a much larger process.
package kubeapi

import (
	"bytes"
	"context"
	"crypto/tls"
	"crypto/x509"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/url"
	"os"
	"strings"
	"time"
)

// Client sends requests to one server and authenticates with a client certificate.
type Client struct {
	base string
	http *http.Client
}

// New returns a client. pemFile contains the client certificate and its key. The client reads it at each TLS handshake, so
// that it uses a renewed certificate without a restart.
func New(base, caFile, pemFile string) *Client {
	config := &tls.Config{
		MinVersion: tls.VersionTLS12,
		GetClientCertificate: func(*tls.CertificateRequestInfo) (*tls.Certificate, error) {
			pair, err := tls.LoadX509KeyPair(pemFile, pemFile)
			return &pair, err
		},
	}
	if pem, err := os.ReadFile(caFile); err == nil {
		config.RootCAs = x509.NewCertPool()
		config.RootCAs.AppendCertsFromPEM(pem)
	}
	transport := &http.Transport{TLSClientConfig: config, ForceAttemptHTTP2: true, IdleConnTimeout: time.Minute}
	return &Client{base: base, http: &http.Client{Transport: transport}}
}

// StatusError is a response whose status code is not 2xx.
type StatusError struct {
	Code    int
	Message string
}

func (e *StatusError) Error() string { return fmt.Sprintf("HTTP %d: %s", e.Code, e.Message) }

// Do sends one request and returns the body of a successful response.
func (c *Client) Do(ctx context.Context, method, path, contentType string, body []byte) ([]byte, error) {
	response, err := c.send(ctx, method, path, contentType, body)
	if err != nil {
		return nil, err
	}
	defer response.Body.Close()
	return io.ReadAll(io.LimitReader(response.Body, 32<<20))
}

func (c *Client) send(ctx context.Context, method, path, contentType string, body []byte) (*http.Response, error) {
	request, err := http.NewRequestWithContext(ctx, method, c.base+path, bytes.NewReader(body))
	if err != nil {
		return nil, err
	}
	if contentType != "" {
		request.Header.Set("Content-Type", contentType)
	}
	response, err := c.http.Do(request)
	if err != nil {
		return nil, err
	}
	if response.StatusCode < 300 {
		return response, nil
	}
	defer response.Body.Close()
	text, _ := io.ReadAll(io.LimitReader(response.Body, 4096))
	return nil, &StatusError{response.StatusCode, strings.TrimSpace(string(text))}
}

// Check returns nil if a GET request of path succeeds.
func (c *Client) Check(ctx context.Context, path string) error {
	ctx, cancel := context.WithTimeout(ctx, 5*time.Second)
	defer cancel()
	_, err := c.Do(ctx, http.MethodGet, path, "", nil)
	return err
}

// Apply applies one object with server-side apply. It takes over fields of other managers, because the node owns the object.
func (c *Client) Apply(ctx context.Context, path string, object []byte) error {
	ctx, cancel := context.WithTimeout(ctx, 10*time.Second)
	defer cancel()
	_, err := c.Do(ctx, http.MethodPatch, path+"?fieldManager=holdfast-node&force=true", "application/apply-patch+yaml", object)
	return err
}

// Delete deletes one object and its dependents. It returns nil if the object does not exist.
func (c *Client) Delete(ctx context.Context, path string) error {
	ctx, cancel := context.WithTimeout(ctx, 10*time.Second)
	defer cancel()
	_, err := c.Do(ctx, http.MethodDelete, path+"?propagationPolicy=Background", "", nil)
	if status := new(StatusError); errors.As(err, &status) && status.Code == http.StatusNotFound {
		return nil
	}
	return err
}

// Query selects the objects to watch.
type Query struct {
	Path          string
	LabelSelector string
	FieldSelector string
}

func (q Query) url(extra url.Values) string {
	if q.LabelSelector != "" {
		extra.Set("labelSelector", q.LabelSelector)
	}
	if q.FieldSelector != "" {
		extra.Set("fieldSelector", q.FieldSelector)
	}
	return q.Path + "?" + extra.Encode()
}

// Object contains the decoded metadata of an object, and the whole object in Raw.
type Object struct {
	Metadata struct {
		Name            string `json:"name"`
		ResourceVersion string `json:"resourceVersion"`
	} `json:"metadata"`
	Raw json.RawMessage `json:"-"`
}

// UnmarshalJSON decodes the metadata and stores the whole object in Raw.
func (o *Object) UnmarshalJSON(data []byte) error {
	type alias Object
	if err := json.Unmarshal(data, (*alias)(o)); err != nil {
		return err
	}
	o.Raw = bytes.Clone(data)
	return nil
}
