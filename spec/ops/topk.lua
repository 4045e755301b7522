--- topk: sample data.
return {
  gen = {x = {distinct = true}},
  calls = {
    {x = {3, 4}, k = 2}, {x = {3, 4}, k = 1, dim = 1, largest = false}, {x = {37}, k = 9},
    {x = {2, 3, 4}, k = 3, dim = 2},
  },
  empty = {{x = {0, 3}, k = 2}, {x = {3, 4}, k = 0}}, scalar = {{x = {}, k = 1}},
  large = {x = {317, 317}, k = 5}, smooth = true, tied = false,
  expect = {
    {{x = {3, 1, 2}, k = 2}, {3, 2}, {1, 3}}, {{x = {3, 1, 2}, k = 2, largest = false}, {1, 2}, {2, 3}},
  },
}
