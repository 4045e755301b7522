--- sort: sample data.
return {
  gen = {x = {distinct = true}},
  calls = {{x = {3, 4}}, {x = {3, 4}, dim = 1, descending = true}, {x = {2, 3, 4}, dim = 2}, {x = {37}}},
  empty = {{x = {0, 3}}, {x = {0, 3}, dim = 1}}, scalar = {{x = {}}}, large = {x = {100003}}, smooth = true,
  tied = false,
  expect = {
    {{x = {3, 1, 2, 1}}, {1, 1, 2, 3}, {2, 4, 3, 1}},
    {{x = {3, 1, 3}, descending = true}, {3, 3, 1}, {1, 3, 2}},
  },
}
