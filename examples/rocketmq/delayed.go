// Sends a message that is due in three seconds, and receives it. Usage: go run delayed.go [HOST:PORT]
package main

import (
	"context"
	"fmt"
	"log"
	"os"
	"time"

	rocketmq "github.com/apache/rocketmq-clients/golang/v5"
	"github.com/apache/rocketmq-clients/golang/v5/credentials"
)

func must(err error) {
	if err != nil {
		log.Fatal(err)
	}
}

func main() {
	rocketmq.EnableSsl = false
	config := &rocketmq.Config{
		Endpoint: "127.0.0.1:8081", ConsumerGroup: "examples", Credentials: &credentials.SessionCredentials{},
	}
	if len(os.Args) > 1 {
		config.Endpoint = os.Args[1]
	}
	producer, err := rocketmq.NewProducer(config, rocketmq.WithTopics("reminders"))
	must(err)
	must(producer.Start())
	all := map[string]*rocketmq.FilterExpression{"reminders": rocketmq.SUB_ALL}
	consumer, err := rocketmq.NewSimpleConsumer(config, rocketmq.WithSimpleAwaitDuration(20*time.Second),
		rocketmq.WithSimpleSubscriptionExpressions(all))
	must(err)
	must(consumer.Start())
	due := time.Now().Add(3 * time.Second)
	message := &rocketmq.Message{Topic: "reminders", Body: []byte("pay order 7")}
	message.SetDelayTimestamp(due)
	receipts, err := producer.Send(context.Background(), message)
	must(err)
	fmt.Println("sent", receipts[0].MessageID)
	for found := false; !found; {
		views, _ := consumer.Receive(context.Background(), 16, 30*time.Second) // nothing yet is an error here
		for _, view := range views {
			late := time.Since(due).Milliseconds()
			fmt.Println("received", view.GetMessageId(), string(view.GetBody()), late, "ms after it was due")
			found = found || view.GetMessageId() == receipts[0].MessageID
			must(consumer.Ack(context.Background(), view))
		}
	}
}
