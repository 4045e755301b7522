-- Trains a network with dropout on the full MNIST set. get.sh fetches the files.
--
--   argand examples/mnist/main.lua [--data DIR] [--epochs N]

local ag = require "argand"
local progress = require "argand.progress"
local nn, optim, data = ag.nn, ag.optim, ag.data

local BATCH_SIZE, LEARNING_RATE, SEED = 128, 3e-3, 1

local here = arg[0]:match "^(.*)/[^/]*$" or "."

local function read_arguments()
  local settings = { data = here .. "/data", epochs = 5 }
  local position = 1
  while arg[position] do
    local name, value = arg[position]:match "^%-%-(%a+)$", arg[position + 1]
    if name == nil or settings[name] == nil or value == nil then
      io.stderr:write("usage: main.lua [--data DIR] [--epochs N]\n")
      os.exit(2)
    end
    settings[name] = value
    position = position + 2
  end
  settings.epochs = tonumber(settings.epochs)
  if not settings.epochs or settings.epochs < 1 then
    io.stderr:write("--epochs: expected a number from 1 on\n")
    os.exit(2)
  end
  return settings
end

-- Images stay u8 in memory, 47 MB instead of 188; a batch becomes f32 [n, 784] when it is made.
local function to_input(x, y)
  return x:reshape(-1, 784):to("f32"):div(255), y
end

local function load_part(directory, part)
  local set, err = data.idx(("%s/%s-images-idx3-ubyte"):format(directory, part),
    ("%s/%s-labels-idx1-ubyte"):format(directory, part))
  if not set then
    io.stderr:write(tostring(err), "\nrun ", here, "/get.sh first, or name the folder: --data DIR\n")
    os.exit(1)
  end
  return set
end

local settings = read_arguments()
ag.manual_seed(SEED)

local train_set, test_set = load_part(settings.data, "train"), load_part(settings.data, "t10k")
local train_loader = data.Loader(train_set,
  { batch_size = BATCH_SIZE, shuffle = true, seed = SEED, transform = to_input })
local test_loader = data.Loader(test_set, { batch_size = 1000, transform = to_input })

local model = nn.Sequential(
  nn.Linear(784, 256, { activation = "relu" }),
  nn.Dropout(0.2),
  nn.Linear(256, #train_set.classes))
local optimizer = optim.AdamW(model:parameters(), { lr = LEARNING_RATE })
print(model)

local function train_epoch(label)
  local total = 0
  model:train()
  for x, y in progress(train_loader:batches(), { total = #train_loader, label = label }) do
    local loss = model(x):cross_entropy(y)
    optimizer:zero_grad()
    loss:backward()
    optimizer:step()
    total = total + loss:item() * #x
  end
  return total / #train_set
end

local function test_accuracy()
  model:eval()
  return ag.no_grad(function()
    local correct = 0
    for x, y in test_loader:batches() do
      correct = correct + model(x):argmax(-1):eq(y):sum():item()
    end
    return correct / #test_set
  end)
end

for epoch = 1, settings.epochs do
  local started = ag.now()
  -- The rate falls to a tenth from the first epoch to the last.
  optimizer.lr = LEARNING_RATE * 0.1 ^ ((epoch - 1) / math.max(settings.epochs - 1, 1))
  local loss = train_epoch("epoch " .. epoch)
  local seconds = ag.now() - started
  print(("epoch %d  loss %.4f  accuracy %.4f  %.2f s"):format(epoch, loss, test_accuracy(), seconds))
end
print(("test accuracy %.4f"):format(test_accuracy()))
