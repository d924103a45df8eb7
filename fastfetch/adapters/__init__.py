"""fastfetch for those who keep another client.

kafka_python, aiokafka                    make that client deliver through fastfetch's decoder: install() and uninstall()
kafka_api, aiokafka_api, confluent_api    that client's consumer by name, over fastfetch's own engine: change one import
"""
