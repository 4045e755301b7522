-- Trains the network of ../digits with several ranks: each takes its share of every batch, and gradients are averaged.
--
--   argand examples/distributed/digits.lua [--epochs N]            one rank
--   argand run -n 4 examples/distributed/digits.lua [--epochs N]   four; also under mpirun, srun and torchrun's variables

local ag = require "argand"
local dist = require "argand.dist"
local nn, optim, data = ag.nn, ag.optim, ag.data

local EPOCHS, BATCH_SIZE, LEARNING_RATE, SEED = 60, 32, 3e-3, 1

local here = arg[0]:match "^(.*)/[^/]*$" or "."

local function read_epochs()
  if #arg == 0 then return EPOCHS end
  local epochs = arg[1] == "--epochs" and #arg == 2 and tonumber(arg[2])
  if epochs and epochs >= 1 and epochs == math.floor(epochs) then return epochs end
  io.stderr:write("usage: digits.lua [--epochs N]\n")
  os.exit(2)
end

local epochs = read_epochs()
dist.init()
local rank, size = dist.rank(), dist.size()

-- Prints on rank 0 only.
local function say(...) dist.on(0, print, ...) end

local digits = assert(data.idx(here .. "/../data/digits-images.idx3-ubyte.gz",
  here .. "/../data/digits-labels.idx1-ubyte.gz"))
local images, labels = unpack(digits.tensors)
local pixels = images:to("f32"):div(16):reshape(-1, 64)

-- The same seed divides the data and orders it in the same way on all ranks; `shard` is what this rank takes of it.
local train_set, test_set = data.split(data.TensorDataset { pixels, labels }, { 0.8, 0.2 }, { seed = SEED })
local train_loader = data.Loader(train_set, { batch_size = math.max(1, math.floor(BATCH_SIZE / size)), shuffle = true,
  seed = SEED, shard = { rank, size } })
local test_loader = data.Loader(test_set, { batch_size = 256, shard = { rank, size } })

ag.manual_seed(SEED)
local model = nn.Sequential(
  nn.Linear(64, 256, { activation = "relu" }),
  nn.Dropout(0.3),
  nn.Linear(256, #digits.classes))
local job = dist.register(model) -- parameters become those of rank 0
local optimizer = optim.AdamW(model:parameters(), { lr = LEARNING_RATE })
ag.manual_seed(SEED + rank) -- each rank drops other units

say(("%d ranks over %s; %d digits to train on, %d to test"):format(size, dist.info().transport, #train_set, #test_set))

local function train_epoch()
  local total = 0
  model:train()
  -- Ranks that have no batch left still take part in the steps of the others.
  for x, y in job:each(train_loader) do
    local loss = model(x):cross_entropy(y)
    loss:backward()
    job:step(optimizer)
    optimizer:zero_grad()
    total = total + loss:item() * #x
  end
  return dist.all_reduce(total) / #train_set
end

local function test_accuracy()
  model:eval()
  return ag.no_grad(function()
    local correct = 0
    for x, y in test_loader:batches() do
      correct = correct + model(x):argmax(-1):eq(y):sum():item()
    end
    return dist.all_reduce(correct) / #test_set
  end)
end

for epoch = 1, epochs do
  dist.note("epoch " .. epoch)
  say(("epoch %2d  loss %.4f"):format(epoch, train_epoch()))
end
say(("test accuracy %.4f"):format(test_accuracy()))
job:close()
dist.close()
