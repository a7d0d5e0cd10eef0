// Package kubeapi is the little that the supervisor asks of the API server: is it ready, apply this, tell me of changes.
// client-go would do it too, and make a far larger process of one that lives as long as the node.
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

// Client talks to one server with a client certificate.
type Client struct {
	base string
	http *http.Client
}

// New makes a client. The certificate is read at each handshake, so that a renewed one is used without being told.
func New(base, caFile, pairFile string) *Client {
	config := &tls.Config{
		MinVersion: tls.VersionTLS12,
		GetClientCertificate: func(*tls.CertificateRequestInfo) (*tls.Certificate, error) {
			pair, err := tls.LoadX509KeyPair(pairFile, pairFile)
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

// StatusError is an answer that is not a success.
type StatusError struct {
	Code    int
	Message string
}

func (e *StatusError) Error() string { return fmt.Sprintf("HTTP %d: %s", e.Code, e.Message) }

// Do sends one request and returns the body of a successful answer.
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

// Healthy asks a health endpoint.
func (c *Client) Healthy(ctx context.Context, path string) error {
	ctx, cancel := context.WithTimeout(ctx, 5*time.Second)
	defer cancel()
	_, err := c.Do(ctx, http.MethodGet, path, "", nil)
	return err
}

// Apply server-side applies one object. Other owners' fields are taken over: these objects are the node's.
func (c *Client) Apply(ctx context.Context, path string, object []byte) error {
	ctx, cancel := context.WithTimeout(ctx, 10*time.Second)
	defer cancel()
	_, err := c.Do(ctx, http.MethodPatch, path+"?fieldManager=holdfast-node&force=true", "application/apply-patch+yaml", object)
	return err
}

// Delete deletes one object and its dependents; an object that does not exist is a success.
func (c *Client) Delete(ctx context.Context, path string) error {
	ctx, cancel := context.WithTimeout(ctx, 10*time.Second)
	defer cancel()
	_, err := c.Do(ctx, http.MethodDelete, path+"?propagationPolicy=Background", "", nil)
	if status := new(StatusError); errors.As(err, &status) && status.Code == http.StatusNotFound {
		return nil
	}
	return err
}

// Query selects what to watch.
type Query struct {
	Path  string
	Label string
	Field string
}

func (q Query) url(extra url.Values) string {
	if q.Label != "" {
		extra.Set("labelSelector", q.Label)
	}
	if q.Field != "" {
		extra.Set("fieldSelector", q.Field)
	}
	return q.Path + "?" + extra.Encode()
}

// Object is the part that every object has; Raw is all of it.
type Object struct {
	Metadata struct {
		Name            string `json:"name"`
		ResourceVersion string `json:"resourceVersion"`
	} `json:"metadata"`
	Raw json.RawMessage `json:"-"`
}

// UnmarshalJSON keeps the whole text beside the decoded part.
func (o *Object) UnmarshalJSON(data []byte) error {
	type plain Object
	if err := json.Unmarshal(data, (*plain)(o)); err != nil {
		return err
	}
	o.Raw = bytes.Clone(data)
	return nil
}
