// RocketMQ's own client for Go, as transactions.py is for Python. Usage: transactions HOST:PORT TOPIC
package main

import (
	"context"
	"encoding/json"
	"fmt"
	"os"
	"sort"
	"sync"
	"time"

	rocketmq "github.com/apache/rocketmq-clients/golang/v5"
	"github.com/apache/rocketmq-clients/golang/v5/credentials"
)

var lock sync.Mutex
var checked = map[string]int{}

func must(err error) {
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
}

func check(view *rocketmq.MessageView) rocketmq.TransactionResolution {
	lock.Lock()
	defer lock.Unlock()
	body := string(view.GetBody())
	checked[body]++
	if body == "unsure" && checked[body] == 1 {
		return rocketmq.UNKNOWN
	}
	if body == "undone" {
		return rocketmq.ROLLBACK
	}
	return rocketmq.COMMIT
}

func main() {
	address, topic := os.Args[1], os.Args[2]
	rocketmq.EnableSsl = false
	background := context.Background()
	config := &rocketmq.Config{
		Endpoint: address, ConsumerGroup: "g", Credentials: &credentials.SessionCredentials{},
	}
	producer, err := rocketmq.NewProducer(config, rocketmq.WithTopics(topic),
		rocketmq.WithTransactionChecker(&rocketmq.TransactionChecker{Check: check}))
	must(err)
	must(producer.Start())
	ids := map[string]string{}
	for _, body := range []string{"committed", "rolled back", "left", "undone", "unsure"} {
		message := &rocketmq.Message{Topic: topic, Body: []byte(body)}
		message.SetTag("tag")
		transaction := producer.BeginTransaction()
		receipts, err := producer.SendWithTransaction(background, message, transaction)
		must(err)
		ids[body] = receipts[0].MessageID
		switch body {
		case "committed":
			must(transaction.Commit())
		case "rolled back":
			must(transaction.RollBack())
		}
	}
	consumer, err := rocketmq.NewSimpleConsumer(config, rocketmq.WithSimpleAwaitDuration(5*time.Second),
		rocketmq.WithSimpleSubscriptionExpressions(
			map[string]*rocketmq.FilterExpression{topic: rocketmq.SUB_ALL}))
	must(err)
	must(consumer.Start())
	seen := []string{}
	until := time.Now().Add(time.Minute)
	for time.Now().Before(until) {
		views, _ := consumer.Receive(background, 16, 20*time.Second) // nothing new is an error here
		if len(views) == 0 && len(seen) >= 4 {
			break
		}
		for _, view := range views {
			body := string(view.GetBody())
			seen = append(seen, body)
			if id, mine := ids[body]; mine && id != view.GetMessageId() {
				must(fmt.Errorf("%s came as %s, it was sent as %s", body, view.GetMessageId(), id))
			}
			must(consumer.Ack(background, view))
		}
	}
	must(consumer.GracefulStop())
	must(producer.GracefulStop())
	sort.Strings(seen)
	lock.Lock()
	text, err := json.Marshal(map[string]any{"seen": seen, "checked": checked})
	must(err)
	fmt.Println(string(text))
}
