--- randn_like: sample data.
return {calls = {{x = {3, 4}}}, empty = {{x = {0, 4}}}, scalar = {{x = {}}}, large = {x = {100003}}}
